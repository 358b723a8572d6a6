// Command variant-autoscaler finds the cheapest replicas of model variants that meet the SLO.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	_ "time/tzdata" // schedules have time zones, and the image has no files

	"fairlead.dev/services/variant-autoscaler/internal/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := commands.New(os.Stdin, os.Stdout, os.Stderr).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "variant-autoscaler:", strings.ReplaceAll(err.Error(), "\n", "; "))
		os.Exit(1)
	}
}
