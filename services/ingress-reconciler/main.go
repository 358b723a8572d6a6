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

	"fairlead.dev/services/ingress-reconciler/internal/commands"
)

// Exit codes. A plan that differs from what is there ends with commands.ErrDiffers.
const (
	exitFailed  = 1
	exitDiffers = 2
)

// gcPercent trades some of the processor, of which little is used, for memory: half of what a process of 2 000 services has is
// otherwise what it had needed when it read them.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := commands.New(os.Stdout, os.Stderr)
	cobra.EnableCommandSorting = false
	switch err := root.ExecuteContext(ctx); {
	case errors.Is(err, commands.ErrDiffers):
		os.Exit(exitDiffers)
	case err != nil:
		fmt.Fprintln(os.Stderr, "ingress-reconciler:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(exitFailed)
	}
}
