// Command endpoint-picker tells inference gateways which model server takes each request.
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

	"fairlead.dev/services/endpoint-picker/internal/commands"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent is twice Go's default: nearly all of the heap lives for one request, so half as many collections save up to a tenth of what a
// request costs, for a fifth more memory with 64 or 256 endpoints. Double again saves nothing more. The soft memory limit stays. GOGC overrides it.
const gcPercent = 200

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := commands.New(os.Args[1:], os.Stdout, os.Stderr).ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "endpoint-picker:", strings.ReplaceAll(err.Error(), "\n", "; "))
	if errors.Is(err, commands.ErrUsage) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}
