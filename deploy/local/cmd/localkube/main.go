// localkube is a whole Kubernetes in one binary and one folder: no containers, no images to pull, no privileges. See
// deploy/local/README.md. It links Kubernetes, so main is thin: code that can be tested separately is in internal/.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"fairlead.dev/deploy/local/internal/control"
	"fairlead.dev/deploy/local/internal/launch"
)

func init() {
	// The cluster dies with the thread that started it (its parent death signal), so use the first thread.
	runtime.LockOSThread()
}

// programs are the parts that run as separate processes, by sub-command.
var programs = map[string]func(args []string) error{
	launch.ControlCommand:     func([]string) error { return control.Run(os.Stdout, os.Stderr) },
	"node-agent":              runNode,
	"etcd":                    runEtcd,
	"etcd-snapshot":           snapshotEtcd,
	"etcd-restore":            restoreEtcd,
	"kube-apiserver":          runAPIServer,
	"kube-controller-manager": runControllerManager,
	"kube-scheduler":          runScheduler,
	"kube-proxy":              runProxy,
	"kubectl":                 runKubectl,
	"helm":                    runHelm,
}

func main() {
	args := os.Args[1:]
	if name := filepath.Base(os.Args[0]); name == "kubectl" || name == "helm" { // a link with that name
		args = append([]string{name}, args...)
	}
	if len(args) > 0 {
		if run, ok := programs[args[0]]; ok {
			os.Args = args // the program's own command line
			exit(run(args[1:]))
		}
	}
	exit(newCommand().Execute())
}

func exit(err error) {
	if err == nil {
		os.Exit(0)
	}
	if !errors.Is(err, launch.ErrFailed) { // already reported
		fmt.Fprintln(os.Stderr, "localkube:", err)
	}
	os.Exit(1)
}
