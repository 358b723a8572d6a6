// Package commands is the command line of the program. Without a subcommand, the program reconciles. Subcommand plan prints the objects
// that it would write.
package commands

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/nodepool-ingress/internal/app"
	"fairlead.dev/services/nodepool-ingress/internal/config"
)

// New returns the command line. It writes results to out, and explanations to log.
func New(out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	root := service.NewCommand(service.Program{
		Name: "nodepool-ingress", Short: "Install one ingress controller in each node pool that a YurtIngress lists",
		AddFlags: cfg.AddFlags, Check: service.CheckFlags(func() error {
			cfg.Policy.Complete()
			return cfg.Validate()
		}), Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return app.Run(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
	root.AddCommand(newPlan(out, log))
	return root
}
