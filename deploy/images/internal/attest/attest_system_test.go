//go:build system

package attest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// compile builds the command of this module once: `go test` records no modules in its own programs.
var compile = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "attest-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir, "fairlead.dev/deploy/images/cmd/image")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return filepath.Join(dir, "image"), nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if file, err := compile(); err == nil {
		_ = os.RemoveAll(filepath.Dir(file))
	}
	os.Exit(code)
}

func TestReadProgram_ReadsWhatTheToolchainRecorded(t *testing.T) {
	t.Parallel()
	file, err := compile()
	require.NoError(t, err)
	p, err := ReadProgram(file, "linux/amd64", strings.Repeat("1", 64))
	require.NoError(t, err)
	testSBOM(t, p)
	testProvenance(t, p)
}
