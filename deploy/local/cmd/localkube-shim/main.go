// localkube-shim starts or joins one container of the embedded Kubernetes; see package shim. It also removes the cgroups of a
// cluster whose launcher has ended.
package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/shim"
)

// tidyTimeout is the maximum time for the processes of a cluster to end.
const tidyTimeout = 15 * time.Second

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
	case len(os.Args) > 2 && os.Args[1] == "tidy":
		_, _ = io.Copy(io.Discard, os.Stdin) // it ends with the launcher, even after SIGKILL
		if err := cgroup.Tidy(os.Args[2:], tidyTimeout); err != nil {
			fmt.Fprintln(os.Stderr, "localkube-shim:", err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "localkube-shim: usage: localkube-shim run SPEC | join PID SPEC | tidy CGROUP... (localkube calls it)")
		os.Exit(2)
	}
}
