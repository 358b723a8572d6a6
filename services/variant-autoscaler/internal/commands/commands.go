// Package commands is the command line of the program. Without a subcommand, the program decides on replicas. Subcommand plan prints a
// decision, solve answers problems on a stream.
package commands

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/memlimit"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/variant-autoscaler/internal/app"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/solve"
)

// New returns the command line. It reads problems from in, and writes results to out and explanations to log.
func New(in io.Reader, out, log io.Writer) *cobra.Command {
	cfg := config.Default(os.Getenv)
	root := &cobra.Command{
		Use:           "variant-autoscaler",
		Short:         "Find the cheapest replicas of model variants that meet the SLO",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String() + " " + version.Commit(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return serve(cmd, cfg, log) },
	}
	root.SetOut(out)
	root.SetErr(log)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	cfg.AddFlags(root.Flags())
	root.AddCommand(newPlan(in, out, log), newSolve(in, out), &cobra.Command{
		Use: "graph", Hidden: true, Args: cobra.NoArgs, Short: "Print the dependencies between components, for Graphviz",
		RunE: func(*cobra.Command, []string) error { return app.PrintGraph(out) }, //nolint:wrapcheck // it says what happened
	})
	return root
}

func newSolve(in io.Reader, out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:   "solve",
		Short: "Answer optimization problems on standard input",
		Long: "Answer optimization problems on standard input. For each problem, solve reads one line of JSON and prints \"ready\", reads the\n" +
			"line \"solve\" and prints the plan as one line of JSON. It ends with the input.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return solve.Run(in, out) }, //nolint:wrapcheck // its errors say what happened
	}
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
	return app.Run(cmd.Context(), cfg, log) //nolint:wrapcheck // its errors say what happened
}
