package family_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/charts/internal/helm"
)

// The archive of a chart depends on its content and on SOURCE_DATE_EPOCH, which Make sets to the time of the commit, and not on the time of
// the checkout.
func TestPackage_IsReproducible(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, c chart) {
		checkout := filepath.Join(t.TempDir(), c.name)
		require.NoError(t, os.CopyFS(checkout, os.DirFS(c.path)))
		first := pack(t, checkout, "1700000000")
		values, yesterday := filepath.Join(checkout, "values.yaml"), time.Now().Add(-24*time.Hour)
		require.NoError(t, os.Chtimes(values, yesterday, yesterday))
		assert.Equal(t, first, pack(t, checkout, "1700000000"))
		assert.NotEqual(t, first, pack(t, checkout, "1800000000"), "of another commit")
	})
}

// pack returns the archive of a chart.
func pack(t *testing.T, dir, epoch string) []byte {
	t.Helper()
	out, command := t.TempDir(), helm.Command()
	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], "package", dir, "--version", "1.2.3", "--destination", out)...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	archive, err := os.ReadFile(filepath.Join(out, filepath.Base(dir)+"-1.2.3.tgz"))
	require.NoError(t, err)
	return archive
}
