// Package commands is the command line of the program. Without a subcommand, the program writes backend sets. Subcommand plan prints
// the changes that it would make.
package commands

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/memlimit"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/backendset-syncer/internal/app"
	"fairlead.dev/services/backendset-syncer/internal/config"
)

// New returns the command line. It writes results to out, and explanations to log.
func New(out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	root := &cobra.Command{
		Use:           "backendset-syncer",
		Short:         "Keep the backends of OCI Load Balancers equal to the endpoints of Services",
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
	root.AddCommand(newPlan(out, log), newAdopt(out, log), &cobra.Command{
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
