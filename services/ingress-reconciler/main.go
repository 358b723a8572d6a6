// Command ingress-reconciler exposes OME's InferenceServices by HTTPRoutes, Ingresses or VirtualServices.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/ingress-reconciler/internal/commands"
)

// gcPercent halves the memory of a process with 2 000 services: with the default of 100 the heap may grow to twice the size that
// the first read of all objects needed. It costs little CPU, because the process is mostly idle. With 50 the peak is 5 % higher.
const gcPercent = 40

func main() {
	service.SetGCPercent(gcPercent)
	service.Main(commands.New(os.Stdout, os.Stderr))
}
