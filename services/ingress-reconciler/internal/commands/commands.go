// Package commands is the command line of the program. Without a subcommand, the program reconciles. Subcommand plan prints the
// objects that the program would write, or explains which backend answers a request. Subcommand status prints where services are
// exposed. Subcommand adopt deletes routes that OME left behind.
package commands

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/memlimit"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/ingress-reconciler/internal/app"
	"fairlead.dev/services/ingress-reconciler/internal/config"
)

// ErrNoRoute means that no route matches a request. The results on stdout already contain this error.
var ErrNoRoute = errors.New("no route matches the request")

// New returns the command line. It writes results to out, and explanations to log.
func New(out, log io.Writer) *cobra.Command { return newRoot(out, log, nil) }

// newRoot returns the command line. Subcommands send requests to the cluster by the transport, nil for that of the kubeconfig.
func newRoot(out, log io.Writer, transport http.RoundTripper) *cobra.Command {
	cfg := config.Default()
	root := &cobra.Command{
		Use:           "ingress-reconciler",
		Short:         "Expose OME's InferenceServices by HTTPRoutes, Ingresses or VirtualServices",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String() + " " + version.Commit(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return serve(cmd, cfg, log)
		},
	}
	root.SetOut(out)
	root.SetErr(log)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	cfg.AddFlags(root.Flags())
	root.AddCommand(newPlan(out, log, transport), newStatus(out, log, transport), newAdopt(out, log, transport), &cobra.Command{
		Use: "graph", Hidden: true, Args: cobra.NoArgs, Short: "Print the dependencies between components, for Graphviz",
		RunE: func(*cobra.Command, []string) error { return app.PrintGraph(out) },
	})
	return root
}

func serve(cmd *cobra.Command, cfg *config.Config, out io.Writer) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	log, err := logging.New(cfg.Logging, out)
	if err != nil {
		return fmt.Errorf("start log: %w", err)
	}
	defer func() { _ = log.Sync() }() // Sync fails if stderr is not a file
	logging.BridgeKlog(log)
	memlimit.Set(log)
	return app.Run(cmd.Context(), cfg, log)
}
