// Command nodepool-ingress installs one ingress controller in each node pool that a YurtIngress lists.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"fairlead.dev/pkg/dryrun"
	"fairlead.dev/services/nodepool-ingress/internal/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cobra.EnableCommandSorting = false
	err := commands.New(os.Stdout, os.Stderr).ExecuteContext(ctx)
	code := dryrun.ExitCode(err)
	if code == dryrun.ExitFailed { // the output explains the other codes
		fmt.Fprintln(os.Stderr, "nodepool-ingress:", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	os.Exit(code)
}
