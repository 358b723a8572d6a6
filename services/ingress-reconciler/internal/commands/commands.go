// Package commands is the command line of the program. Without a subcommand, the program reconciles. Subcommand plan prints the
// objects that the program would write, or explains which backend answers a request. Subcommand status prints where services are
// exposed. Subcommand adopt deletes routes that OME left behind.
package commands

import (
	"context"
	"io"
	"net/http"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/pkg/service"
	"fairlead.dev/services/ingress-reconciler/internal/app"
	"fairlead.dev/services/ingress-reconciler/internal/config"
)

// ErrNoRoute means that no route matches a request. The results on stdout already contain this error.
var ErrNoRoute = service.Explained("no route matches the request", dryrun.ExitDiffers)

// New returns the command line. It writes results to out, and explanations to log.
func New(out, log io.Writer) *cobra.Command { return newRoot(out, log, nil) }

// newRoot returns the command line. Subcommands send requests to the cluster by the transport, nil for that of the kubeconfig.
func newRoot(out, log io.Writer, transport http.RoundTripper) *cobra.Command {
	cfg := config.Default()
	root := service.NewCommand(service.Program{
		Name: "ingress-reconciler", Short: "Expose OME's InferenceServices by HTTPRoutes, Ingresses or VirtualServices",
		AddFlags: cfg.AddFlags, Check: service.CheckFlags(cfg.Validate), Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return app.Run(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
	root.AddCommand(newPlan(out, log, transport), newStatus(out, log, transport), newAdopt(out, log, transport))
	return root
}
