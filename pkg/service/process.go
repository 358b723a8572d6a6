// Package service has what all services do alike: the process with its signals and exit codes, the command line, and the container
// that creates the parts of the program. Package run is the life cycle of a service in which one replica writes.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/memlimit"
)

// exitFailed is the exit code of an error without its own.
const exitFailed = 1

// ExitError is an error with an exit code.
type ExitError struct {
	error

	Code      int
	Explained bool // by the output of the command: the error is not printed
}

// WithExitCode gives an error an exit code.
func WithExitCode(err error, code int) *ExitError { return &ExitError{error: err, Code: code} }

// Explained returns an error with an exit code that the output of the command already explains.
func Explained(text string, code int) *ExitError {
	return &ExitError{error: errors.New(text), Code: code, Explained: true}
}

// Unwrap returns the cause.
func (e *ExitError) Unwrap() error { return e.error }

// ExitCode returns the exit code of a process whose command returned err, and prints err on one line unless the output explains it.
func ExitCode(name string, err error, log io.Writer) int {
	if err == nil {
		return 0
	}
	exit := WithExitCode(err, exitFailed)
	errors.As(err, &exit)
	if !exit.Explained {
		fmt.Fprintln(log, name+":", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return exit.Code
}

// Main executes a command and ends the process. SIGINT and SIGTERM cancel the context of the command; a second signal ends the process at
// once. The command of a Program also makes the settings that a process has once: the log of klog and the memory limit.
func Main(root *cobra.Command) {
	cobra.EnableCommandSorting = false
	ctx, stop := signal.NotifyContext(withProcess(context.Background()), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(ExitCode(root.Name(), root.ExecuteContext(ctx), os.Stderr))
}

// processKey is the context key that says that a command owns the process.
type processKey struct{}

func withProcess(ctx context.Context) context.Context {
	return context.WithValue(ctx, processKey{}, true)
}

// setUpProcess makes the settings that a process has once, if the command owns the process. Other commands, as tests run them beside
// each other, leave them alone: klog does not synchronize them.
func setUpProcess(ctx context.Context, log *zap.Logger) {
	if ctx.Value(processKey{}) == nil {
		return
	}
	logging.BridgeKlog(log)
	memlimit.Set(log)
}

// SetGCPercent sets how much the heap may grow between garbage collections, in percent of what lives. GOGC overrides it.
func SetGCPercent(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
