// Package nstest runs tests as root in their own namespaces, and builds the programs that such tests need.
//
// Inside runs a test twice: on this machine, where it only starts the test binary again as the first process of new user,
// network, mount, pid, ipc and uts namespaces, and there, where the test does its work. It needs no privileges if user
// namespaces are allowed, and mounts, links and processes of a test end with its namespaces.
package nstest

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"fairlead.dev/pkg/kubetest"
)

const (
	// insideEnv contains the name of the test that runs inside.
	insideEnv = "NSTEST_INSIDE"
	// idRange is the number of user IDs that root maps into the namespaces.
	idRange = 1 << 16
)

// limit is the time limit of a test inside, which waits several times.
var limit = 4 * kubetest.Patience

func init() {
	// The first thread never ends, so it must not enter another namespace permanently. The main goroutine keeps it, as in
	// localkube itself.
	runtime.LockOSThread()
}

// Inside runs f as the first process of new namespaces, with its own /proc. Root maps a range of user IDs, other users only
// one.
func Inside(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	size := 1
	if os.Getuid() == 0 {
		size = idRange
	}
	inside(t, size, f)
}

// InsideWithOneID is Inside as for users other than root.
func InsideWithOneID(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	inside(t, 1, f)
}

// UserRange reports whether the caller's user namespace maps a range of user IDs.
func UserRange(t *testing.T) bool {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw)) // from, to, number
	if len(fields) < 3 {
		t.Fatalf("no user ids are mapped: %q", raw)
	}
	n, err := strconv.Atoi(fields[2])
	if err != nil {
		t.Fatal(err)
	}
	return n > 1
}

func inside(t *testing.T, ids int, f func(t *testing.T)) {
	t.Helper()
	if os.Getenv(insideEnv) == t.Name() {
		ownMounts(t)
		f(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run="+pattern(t.Name()), "-test.v", "-test.timeout="+limit.String())
	// The race detector's runtime sleeps for a second at each exit, for reports of running threads.
	cmd.Env = append(os.Environ(), insideEnv+"="+t.Name(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUTS,
		UidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: ids}},
		GidMappings:                []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: ids}},
		GidMappingsEnableSetgroups: ids > 1,
		Pdeathsig:                  unix.SIGKILL,
	}
	runtime.LockOSThread() // the child would end with it
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("in namespaces: %v\n%s", err, out)
		return
	}
	t.Logf("in namespaces:\n%s", out)
	if skipped(string(out), t.Name()) {
		t.Skip("it skipped in its namespaces, for the reason above")
	}
}

// skipped reports whether the output of a verbose run contains a skipped test; the exit code does not show it.
func skipped(out, name string) bool {
	return regexp.MustCompile(`(?m)^\s*--- SKIP: ` + regexp.QuoteMeta(name) + ` \(`).MatchString(out)
}

// pattern selects one test, or one subtest.
func pattern(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// ownMounts makes the test's mounts private and mounts its own /proc.
func ownMounts(t *testing.T) {
	t.Helper()
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatalf("make mounts private: %v", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		t.Fatalf("mount /proc: %v", err)
	}
}
