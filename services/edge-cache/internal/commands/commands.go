// Package commands is the command line of the program.
package commands

import (
	"context"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/edge-cache/internal/app"
	"fairlead.dev/services/edge-cache/internal/config"
)

// New returns the command line. It writes results to out, and the log to log.
func New(out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	return service.NewCommand(service.Program{
		Name: "edge-cache", Short: "Serve the Kubernetes API to the ingress controller of a node pool, with and without the cloud",
		AddFlags: cfg.AddFlags, Check: service.CheckFlags(cfg.Validate), Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return app.Run(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
}
