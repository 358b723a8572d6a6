// Command ingress-reconciler exposes OME's InferenceServices by HTTPRoutes, Ingresses or VirtualServices.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/ingress-reconciler/internal/commands"
)

// gcPercent halves the memory of a process with 2 000 services: with the default of 100 the heap may grow to twice the size that
// the first read of all objects needed. It costs little CPU, because the process is mostly idle. With 50 the peak is 5 % higher.
const gcPercent = 40

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := commands.New(os.Stdout, os.Stderr)
	cobra.EnableCommandSorting = false
	err := root.ExecuteContext(ctx)
	code := dryrun.ExitCode(err)
	if errors.Is(err, commands.ErrNoRoute) {
		code = dryrun.ExitDiffers
	}
	if code == dryrun.ExitFailed { // the results explain the other codes
		fmt.Fprintln(os.Stderr, "ingress-reconciler:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	os.Exit(code)
}
