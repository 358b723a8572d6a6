// Command backendset-syncer keeps the backends of OCI Load Balancers equal to the endpoints of Services.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/backendset-syncer/internal/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := commands.New(os.Stdout, os.Stderr).ExecuteContext(ctx)
	code := dryrun.ExitCode(err)
	if code == dryrun.ExitFailed { // the results explain the other codes
		fmt.Fprintln(os.Stderr, "backendset-syncer:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	os.Exit(code)
}
