package service

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
)

// Program is what the root command of a service runs.
type Program struct {
	Name, Short string
	AddFlags    func(*pflag.FlagSet)
	Check       func(*pflag.FlagSet) error // completes and validates the configuration after the flags have been parsed
	Logging     *logging.Options
	Run         func(ctx context.Context, log *zap.Logger) error
	PrintGraph  func(w io.Writer) error
}

// NewCommand returns the root command, which runs the program. It writes results to out, and logs and errors to log.
func NewCommand(p Program, out, log io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           p.Name,
		Short:         p.Short,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.String() + " " + version.Commit(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return p.runProgram(cmd, log) },
	}
	root.SetOut(out)
	root.SetErr(log)
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	p.AddFlags(root.Flags())
	root.AddCommand(&cobra.Command{
		Use: "graph", Hidden: true, Args: cobra.NoArgs, Short: "Print the dependencies between components, for Graphviz",
		RunE: func(*cobra.Command, []string) error { return p.PrintGraph(out) },
	})
	return root
}

func (p *Program) runProgram(cmd *cobra.Command, w io.Writer) error {
	if err := p.Check(cmd.Flags()); err != nil {
		return err
	}
	log, err := logging.New(*p.Logging, w)
	if err != nil {
		return fmt.Errorf("start log: %w", err)
	}
	defer func() { _ = log.Sync() }() // Sync fails if stderr is not a file
	setUpProcess(cmd.Context(), log)
	return p.Run(cmd.Context(), log)
}

// CheckFlags returns a check that names the flags as the source of the errors of validate.
func CheckFlags(validate func() error) func(*pflag.FlagSet) error {
	return func(*pflag.FlagSet) error {
		if err := validate(); err != nil {
			return fmt.Errorf("flags: %w", err)
		}
		return nil
	}
}
