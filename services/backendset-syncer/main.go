// Command backendset-syncer keeps the backends of OCI Load Balancers equal to the endpoints of Services.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/backendset-syncer/internal/commands"
)

func main() {
	service.Main(commands.New(os.Stdout, os.Stderr))
}
