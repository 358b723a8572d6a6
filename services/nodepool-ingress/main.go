// Command nodepool-ingress installs one ingress controller in each node pool that a YurtIngress lists.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/nodepool-ingress/internal/commands"
)

func main() {
	service.Main(commands.New(os.Stdout, os.Stderr))
}
