package commands

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/service"
)

// run returns what a command line writes.
func run(ctx context.Context, args ...string) (out, log string, err error) {
	var o, l bytes.Buffer
	err = New(args, &o, &l).ExecuteContext(ctx)
	return o.String(), l.String(), err
}

func TestOtherCommands(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"endpoint-picker (devel)": {"--version"},
		"digraph":                 {"graph"},
		"--pool-name string":      {"--help"},
		"--recording string":      {"replay", "--help"},
	} {
		out, _, err := run(t.Context(), args...)
		require.NoError(t, err)
		assert.Contains(t, out, want)
	}
}

func TestMistakesOfUsersAreUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag: --pools-of-all: see --help":                        {"--pools-of-all"},
		"--pool-name is missing: give the name of the InferencePool":      {"-poolNamespace=n"},
		"unknown flag: -recording: did you mean --recording?":             {"replay", "-recording=f"},
		`unexpected argument "false": the value of a switch follows =`:    {"-poolName", "p", "-secureServing", "false"},
		`--rate "x" is not a number`:                                      {"replay", "--rate=x"},
		`--seed "-1" is not a whole number of 0 or more`:                  {"replay", "--seed=-1"},
		`unexpected argument "serve": all settings are flags, see --help`: {"--pool-name=p", "serve"},
		"--pool-name is missing: give the name":                           {},
		"--recording is missing: give the file of a recording":            {"replay"},
		`unexpected argument "f": all settings are flags`:                 {"replay", "f"},
		"only one of --load and --rate can be given":                      {"replay", "--recording=f", "--load=0.7", "--rate=3"},
		"--config-text: ": {"--pool-name=p", "--config-text=x"},
	} {
		_, _, err := run(t.Context(), args...)
		require.ErrorContains(t, err, want)
		assert.Equal(t, exitUsage, service.ExitCode("", err, io.Discard))
	}
}

func TestReplayCommand(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "r")
	line := `{"timestamp": T, "input_length": 600, "output_length": 10, "hash_ids": [1, 2]}` + "\n"
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(line, "T", "0", 1)+strings.Replace(line, "T", "900", 1)), 0o600))
	out, log, err := run(t.Context(), "replay", "--recording="+file, "--servers=2")
	require.NoError(t, err)
	assert.Empty(t, log)
	assert.Contains(t, out, "picker, default")

	_, _, err = run(t.Context(), "replay", "--recording="+file+"x")
	require.ErrorContains(t, err, "no such file")
	assert.Equal(t, 1, service.ExitCode("", err, io.Discard))
}

func TestEveryFlagOfReplayIsInTheREADME(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	command, _, err := New(nil, &bytes.Buffer{}, &bytes.Buffer{}).Find([]string{"replay"})
	require.NoError(t, err)
	command.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		assert.True(t, bytes.Contains(readme, []byte("`--"+f.Name+"`")), f.Name)
		assert.True(t, strings.HasSuffix(f.Usage, "."), "%s: %s", f.Name, f.Usage)
	})
}
