// Command variant-autoscaler finds the cheapest replicas of model variants that meet the SLO.
package main

import (
	"os"
	_ "time/tzdata" // schedules have time zones, and the image has no files

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/variant-autoscaler/internal/commands"
)

func main() {
	service.Main(commands.New(os.Stdin, os.Stdout, os.Stderr))
}
