//go:build system

package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/images/internal/programtest"
)

// The command lists the CA certificates by the version that it links.
func TestBuild_SBOMHasTheCertificates(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "image")
	compile := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	compile.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := compile.CombinedOutput()
	require.NoError(t, err, "%s", out)
	info, err := buildinfo.ReadFile(program)
	require.NoError(t, err)
	at := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "golang.org/x/crypto/x509roots/fallback" })
	require.GreaterOrEqual(t, at, 0)

	dir := filepath.Join(t.TempDir(), "layout")
	out, err = exec.CommandContext(t.Context(), program, "build", dir, "--name=app", "--binary=linux/amd64="+programtest.Compile(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	documents, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	require.NoError(t, err)
	want := "pkg:golang/golang.org/x/crypto/x509roots/fallback@" + info.Deps[at].Version
	assert.True(t, slices.ContainsFunc(documents, func(name string) bool {
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		return bytes.Contains(raw, []byte(want))
	}), want)
}
