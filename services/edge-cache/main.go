// Command edge-cache serves the Kubernetes API to the ingress controller beside it: filtered to a node pool, and also without the cloud.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"fairlead.dev/services/edge-cache/internal/commands"
)

// gcPercent is a quarter of Go's default: most of the memory is encoded objects that live as long as the process, so collections find little
// else, and a heap that grows to twice their size is mostly garbage. GOGC overrides it.
const gcPercent = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := commands.New(os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "edge-cache:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}
