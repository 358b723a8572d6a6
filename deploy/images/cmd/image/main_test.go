package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := newCommand()
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestBuild(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "app")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o755))
	dir := filepath.Join(t.TempDir(), "layout")
	out, err := execute(t, "build", dir, "--name=app", "--binary=linux/amd64="+file, "--file="+file+"=/usr/bin/other", "--attest=false")
	require.NoError(t, err)
	assert.Regexp(t, `^sha256:[0-9a-f]{64}\n$`, out)
	assert.FileExists(t, filepath.Join(dir, "index.json"))
}

func TestFlagsThatAreWrong(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args []string
		want string
	}{
		{args: []string{"build", "x", "--name=app", "--binary=app"}, want: `--binary "app" is not PLATFORM=FILE`},
		{args: []string{"build", "x", "--name=app", "--file=app"}, want: `--file "app" is not FILE=/TARGET`},
		{args: []string{"build", "x"}, want: "an image needs a name and a binary"},
		{args: []string{"push", "x"}, want: `required flag(s) "registry" not set`},
	}
	for _, tt := range tests {
		_, err := execute(t, tt.args...)
		require.ErrorContains(t, err, tt.want)
	}
}

func TestSourceDate(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]int64{"": 0, "1762000000": 1762000000} {
		got, err := sourceDate(give)
		require.NoError(t, err)
		assert.Equal(t, time.Unix(want, 0), got)
	}
	_, err := sourceDate("yesterday")
	require.ErrorContains(t, err, "SOURCE_DATE_EPOCH: want seconds since 1970")
}
