// Package commands is the command line of the program. Without a subcommand, the program writes backend sets. Subcommand plan prints
// the changes that it would make.
package commands

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/backendset-syncer/internal/app"
	"fairlead.dev/services/backendset-syncer/internal/config"
)

// New returns the command line. It writes results to out, and explanations to log.
func New(out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	root := service.NewCommand(service.Program{
		Name: "backendset-syncer", Short: "Keep the backends of OCI Load Balancers equal to the endpoints of Services",
		AddFlags: cfg.AddFlags, Check: service.CheckFlags(cfg.Validate), Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return app.Run(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
	root.AddCommand(newPlan(out, log), newAdopt(out, log))
	return root
}
