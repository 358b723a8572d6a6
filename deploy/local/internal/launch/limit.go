package launch

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/control"
)

// limit creates the cluster's cgroups, or records why there are none. The returned function removes them after the cluster
// has ended. If this process is killed, a small waiting process removes them instead.
func limit(h *control.Handover) (tidy func()) {
	nothing := func() {}
	if h.Config.ControlPlaneOnly {
		return nothing
	}
	tree, err := cgroup.New(fmt.Sprintf("localkube-%d-%x", os.Getpid(), h.Started.UnixNano()))
	if err != nil {
		h.NoLimits = err.Error()
		return nothing
	}
	cmd := exec.Command(h.Shim, append([]string{"tidy"}, tree.Roots()...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C must reach only this process
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = tree.Remove(0) // it is still empty
		h.NoLimits = fmt.Sprintf("nothing would remove the cgroups: %v", err)
		return nothing
	}
	h.Cgroups = tree
	return func() {
		stdin.Close()
		_ = cmd.Wait() // it has logged the error
	}
}
