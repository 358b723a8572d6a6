// localkube-shim starts or joins one container of the embedded Kubernetes; see package shim.
package main

import (
	"fmt"
	"os"

	"fairlead.dev/deploy/local/internal/shim"
)

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "run":
		err := shim.Run(os.Args[2])
		fmt.Fprintln(os.Stderr, "localkube-shim:", err)
		os.Exit(shim.ExitCannotStart)
	case len(os.Args) == 4 && os.Args[1] == "join":
		code, err := shim.Join(os.Args[2], os.Args[3])
		if err != nil {
			fmt.Fprintln(os.Stderr, "localkube-shim:", err)
			code = shim.ExitCannotJoin
		}
		os.Exit(code)
	default:
		fmt.Fprintln(os.Stderr, "localkube-shim: usage: localkube-shim run SPEC | join PID SPEC (localkube calls it)")
		os.Exit(2)
	}
}
