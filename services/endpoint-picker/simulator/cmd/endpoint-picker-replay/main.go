// Command endpoint-picker-replay plays a recording of an endpoint-picker in virtual time, and compares configurations.
package main

import (
	"os"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/simulator/internal/replay"
)

func main() {
	service.Main(replay.NewCommand(os.Stdout, os.Stderr))
}
