// Command edge-cache serves the Kubernetes API to the ingress controller beside it: filtered to a node pool, and also without the cloud.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/edge-cache/internal/commands"
)

// gcPercent is a quarter of Go's default: most of the memory is encoded objects that live as long as the process, so collections find
// little else, and a heap that grows to twice their size is mostly garbage. GOGC overrides it.
const gcPercent = 25

func main() {
	service.SetGCPercent(gcPercent)
	service.Main(commands.New(os.Stdout, os.Stderr))
}
