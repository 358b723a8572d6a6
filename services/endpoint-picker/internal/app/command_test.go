package app

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/service"
)

// runCommand returns what a command line writes.
func runCommand(ctx context.Context, args ...string) (out, log string, err error) {
	var o, l bytes.Buffer
	err = NewCommand(args, &o, &l).ExecuteContext(ctx)
	return o.String(), l.String(), err
}

func TestOtherCommands(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"endpoint-picker (devel)": {"--version"},
		"digraph":                 {"graph"},
		"--pool-name string":      {"--help"},
	} {
		out, _, err := runCommand(t.Context(), args...)
		require.NoError(t, err)
		assert.Contains(t, out, want)
	}
}

func TestAddressOfTheDebugPage(t *testing.T) {
	t.Parallel()
	for want, metrics := range map[string]string{
		"http://localhost:9090/debug/pools.html": "[::]:9090", "http://10.0.0.1:9090/debug/pools.html": "10.0.0.1:9090",
		"http://[fd00::1]:9090/debug/pools.html": "[fd00::1]:9090", "": "",
	} {
		assert.Equal(t, want, debugPageURL("http", metrics))
	}
}

func TestMistakesOfUsersAreUsageErrors(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"unknown flag: --pools-of-all: see --help":                                                {"--pools-of-all"},
		"--pool-name is missing: give the name of the InferencePool":                              {"-poolNamespace=n"},
		`unexpected argument "false": the value of a switch follows =`:                            {"-poolName", "p", "-secureServing", "false"},
		`unexpected argument "serve": all settings are flags, see --help`:                         {"--pool-name=p", "serve"},
		"--pool-name is missing: give the name":                                                   {},
		`unexpected argument "http://b:8000": --servers takes all URLs, with commas between them`: {"--servers", "http://a:8000", "http://b:8000"},
		"replay is a program of its own: run endpoint-picker-replay":                              {"replay", "--recording=f"},
		"run endpoint-picker-replay with the same flags":                                          {"replay", "--help"},
		"--config-text: ": {"--pool-name=p", "--config-text=x"},
	} {
		_, _, err := runCommand(t.Context(), args...)
		require.ErrorContains(t, err, want)
		assert.Equal(t, exitUsage, service.ExitCode("", err, io.Discard))
	}
}
