// Package commands is the command line of the program. The controller does not exist yet: subcommand solve answers problems on a stream.
package commands

import (
	"io"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/version"
	"fairlead.dev/services/variant-autoscaler/internal/solve"
)

// New returns the command line. It reads problems from in, and writes plans to out and usage errors to log.
func New(in io.Reader, out, log io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "variant-autoscaler",
		Short:         "Find the cheapest replicas of model variants that meet the SLO",
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String() + " " + version.Commit(),
	}
	root.SetOut(out)
	root.SetErr(log)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(&cobra.Command{
		Use:   "solve",
		Short: "Answer optimization problems on standard input",
		Long: "Answer optimization problems on standard input. For each problem, solve reads one line of JSON and prints \"ready\", reads the\n" +
			"line \"solve\" and prints the plan as one line of JSON. It ends with the input.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return solve.Run(in, out) }, //nolint:wrapcheck // its errors say what happened
	})
	return root
}
