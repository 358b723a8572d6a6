// Command endpoint-picker tells inference gateways which model server takes each request.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/app"
)

// gcPercent is twice Go's default: nearly all of the heap lives for one request, so half as many collections save up to a tenth of what a
// request costs, for a fifth more memory with 64 or 256 endpoints. Double again saves nothing more. The soft memory limit stays. GOGC
// overrides it.
const gcPercent = 200

func main() {
	service.SetGCPercent(gcPercent)
	service.Main(app.NewCommand(os.Args[1:], os.Stdout, os.Stderr))
}
