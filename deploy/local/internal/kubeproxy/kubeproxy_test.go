package kubeproxy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/local/internal/nstest"
)

// needNFT skips where the program is not installed.
func needNFT(t *testing.T) string {
	t.Helper()
	nft, err := Find()
	if err != nil {
		t.Skip(err)
	}
	return nft
}

// tables lists the tables in the network namespace of the test.
func tables(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), needNFT(t), "list", "tables").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

func TestCheck_AcceptsTheRulesAndLeavesNone(t *testing.T) {
	t.Parallel()
	for name, inside := range map[string]func(*testing.T, func(*testing.T)){"range of ids": nstest.Inside, "one id": nstest.InsideWithOneID} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside(t, func(t *testing.T) {
				needNFT(t)
				require.NoError(t, Check(t.Context()))
				assert.Empty(t, tables(t))
			})
		})
	}
}

func TestSetupNode_AddsItsTable(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		needNFT(t)
		require.NoError(t, SetupNode(t.Context()))
		assert.Equal(t, "table ip localkube", tables(t))
	})
}

func TestApply_ErrorIsTheFirstLineOfNFT(t *testing.T) {
	t.Parallel()
	nstest.Inside(t, func(t *testing.T) {
		nft := needNFT(t)
		err := apply(t.Context(), "add rule ip nowhere rules accept\n")
		require.ErrorContains(t, err, "run "+nft+": exit status 1: ")
		require.ErrorContains(t, err, "No such file or directory")
		assert.NotContains(t, err.Error(), "\n")
	})
}

func TestFind_LooksBesideThePath(t *testing.T) {
	t.Setenv("PATH", "/nowhere")
	dir := t.TempDir()
	_, err := find([]string{dir})
	require.EqualError(t, err, "the program nft is missing: install the package nftables")

	file := filepath.Join(dir, program)
	require.NoError(t, os.WriteFile(file, nil, 0o755))
	got, err := find([]string{t.TempDir(), dir})
	require.NoError(t, err)
	assert.Equal(t, file, got)
}

func TestEnv_LeadsKubeProxyToNFT(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, program), nil, 0o755))
	t.Setenv("PATH", dir)
	assert.Equal(t, []string{"A=b", "PATH=" + dir + ":" + dir}, Env([]string{"A=b"}))
}
