// Command variant-autoscaler finds the cheapest replicas of model variants that meet the SLO.
package main

import (
	"fmt"
	"os"

	"fairlead.dev/services/variant-autoscaler/internal/commands"
)

func main() {
	if err := commands.New(os.Stdin, os.Stdout, os.Stderr).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "variant-autoscaler:", err)
		os.Exit(1)
	}
}
