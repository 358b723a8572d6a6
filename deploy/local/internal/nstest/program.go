package nstest

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
	"testing"
)

// Main packages that tests run.
const (
	// Shim starts and joins containers.
	Shim = "fairlead.dev/deploy/local/cmd/localkube-shim"
	// Probe runs actions of a test in a container.
	Probe = "fairlead.dev/deploy/local/internal/nstest/probe"
)

// programsEnv is the environment variable with the programs of a test inside.
const programsEnv = "NSTEST_PROGRAMS"

// programs are the programs that this process has built.
var programs struct {
	sync.Mutex
	dir  string
	made map[string]error // by package: the result of the build
}

// Program builds a main package as a static binary, once per run, and returns the file. A test that uses it inside calls it
// before Inside. The package's TestMain must end with Exit.
func Program(t *testing.T, pkg string) string {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	dir := os.Getenv(programsEnv)
	if _, ok := os.LookupEnv(insideEnv); ok {
		return filepath.Join(dir, path.Base(pkg))
	}
	if programs.dir == "" {
		made, err := os.MkdirTemp("", "nstest-")
		if err != nil {
			t.Fatal(err)
		}
		programs.dir, programs.made = made, map[string]error{}
		if err := os.Setenv(programsEnv, made); err != nil { //nolint:usetesting // for all tests of the run
			t.Fatal(err)
		}
	}
	file := filepath.Join(programs.dir, path.Base(pkg))
	if _, ok := programs.made[pkg]; !ok {
		programs.made[pkg] = build(t, pkg, file)
	}
	if err := programs.made[pkg]; err != nil {
		t.Fatalf("build %s: %v", pkg, err)
	}
	return file
}

func build(t *testing.T, pkg, file string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", file, pkg)
	// Use the flags of build.sh, to share its build cache.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-trimpath -buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("%s", out)
	}
	return err
}

// Exit removes the programs and ends the process.
func Exit(code int) {
	programs.Lock()
	defer programs.Unlock()
	if programs.dir != "" {
		_ = os.RemoveAll(programs.dir) // a temporary directory
	}
	os.Exit(code)
}
