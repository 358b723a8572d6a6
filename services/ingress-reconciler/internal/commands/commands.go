// Package commands is the command line: without a word after it the program serves; plan prints what it would write; adopt
// removes what OME has left behind.
package commands

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/ingress-reconciler/internal/app"
	"fairlead.dev/services/ingress-reconciler/internal/config"
)

// ErrDiffers means that a cluster is not as a plan wants it.
var ErrDiffers = errors.New("there are differences")

// New returns the command line. Results go to out, what is said of them to log.
func New(out, log io.Writer) *cobra.Command {
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
	root.AddCommand(newPlan(out, log), newAdopt(out), &cobra.Command{
		Use: "graph", Hidden: true, Args: cobra.NoArgs, Short: "Print how the parts depend on each other, for Graphviz",
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
	defer func() { _ = log.Sync() }() // stderr need not be a file that can be synced
	logging.BridgeKlog(log)
	return app.Run(cmd.Context(), cfg, log)
}
