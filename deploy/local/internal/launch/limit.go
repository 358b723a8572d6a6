package launch

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"fairlead.dev/deploy/local/internal/cgroup"
	"fairlead.dev/deploy/local/internal/control"
)

// limit makes the cluster's cgroups, or notes why there are none. The function that it returns removes them, once the cluster has
// ended. If this process is killed, a small process does it that waits for nothing else: nobody would be left to do it.
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is for us
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		_ = tree.Remove(0) // nothing is in it yet
		h.NoLimits = fmt.Sprintf("nothing would remove the cgroups: %v", err)
		return nothing
	}
	h.Cgroups = tree
	return func() {
		stdin.Close()
		_ = cmd.Wait() // it says itself what went wrong
	}
}
