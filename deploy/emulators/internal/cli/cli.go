// Package cli contains the common code of the emulators' commands.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/version"
)

// Main runs a command with its arguments. A signal ends ctx. If the command fails, Main prints the error and exits with code 1.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the process immediately
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", name, err)
		os.Exit(1)
	}
}

// Parse parses flags, and adds the flag --version. It returns true if the command must exit: with an error, or after it has
// printed help or the version to out.
func Parse(fs *pflag.FlagSet, args []string, out io.Writer) (done bool, err error) {
	fs.SetOutput(out)
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return true, nil
	case err != nil:
		return true, fmt.Errorf("parse flags: %w", err)
	case fs.NArg() > 0:
		return true, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case *showVersion:
		fmt.Fprintln(out, version.String())
		return true, nil
	}
	return false, nil
}
