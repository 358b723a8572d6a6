package memlimit

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The limit is the process's: nothing here runs beside anything else.
func TestSet(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	tests := []struct {
		name      string
		content   string
		variable  string
		want      int64
		wantLimit int64
	}{
		{name: "a share of the container's", content: "1073741824\n", want: 966367620, wantLimit: 966367620},
		{name: "no limit", content: "max\n", wantLimit: math.MaxInt64},
		{name: "GOMEMLIMIT comes first", content: "1073741824\n", variable: "512MiB", wantLimit: math.MaxInt64},
		{name: "larger than Go can count", content: "18446744073709551615", want: 8301034833169298220, wantLimit: 8301034833169298220},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			debug.SetMemoryLimit(math.MaxInt64)
			t.Setenv(variable, tt.variable)
			file := filepath.Join(t.TempDir(), "memory.max")
			require.NoError(t, os.WriteFile(file, []byte(tt.content), 0o600))
			got, err := Set(file)
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.wantLimit, debug.SetMemoryLimit(-1))
		})
	}
}

func TestSetWithoutAUsableFile(t *testing.T) {
	t.Setenv(variable, "")
	got, err := Set(filepath.Join(t.TempDir(), "absent"))
	require.NoError(t, err, "not in a container, or on an old kernel")
	assert.Zero(t, got)

	file := filepath.Join(t.TempDir(), "memory.max")
	require.NoError(t, os.WriteFile(file, []byte("plenty"), 0o600))
	_, err = Set(file)
	require.ErrorContains(t, err, "read memory limit of "+file)
	_, err = Set(t.TempDir())
	require.ErrorContains(t, err, "read memory limit: ")
}
