// Package commands is the command line of the program. Without a subcommand, the program decides on replicas. Subcommand plan prints a
// decision.
package commands

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/variant-autoscaler/internal/app"
	"fairlead.dev/services/variant-autoscaler/internal/config"
)

// New returns the command line. It reads problems from in, and writes results to out and explanations to log.
func New(in io.Reader, out, log io.Writer) *cobra.Command {
	cfg := config.Default(os.Getenv)
	root := service.NewCommand(service.Program{
		Name: "variant-autoscaler", Short: "Find the cheapest replicas of model variants that meet the SLO",
		AddFlags: cfg.AddFlags, Check: service.CheckFlags(cfg.Validate), Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return app.Run(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
	root.AddCommand(newPlan(in, out, log))
	return root
}
