package memlimit

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	zaptest "go.uber.org/zap/zaptest/observer"
)

// unset removes a variable until the test ends.
func unset(t *testing.T, name string) {
	t.Helper()
	t.Setenv(name, "") // restores the value
	require.NoError(t, os.Unsetenv(name))
}

// The limit is that of the process, so the tests do not run in parallel.
func TestSet(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	fails := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	tests := []struct {
		name       string
		container  memlimit.Provider
		gomemlimit string
		want       int64
		logs       []string
	}{
		{name: "a container with a limit", container: memlimit.Limit(1 << 30), want: 966367641, logs: []string{"info Set the soft memory limit"}},
		{name: "a container without a limit", container: fails(memlimit.ErrNoLimit), want: math.MaxInt64},
		{name: "no container", container: fails(memlimit.ErrNoCgroup), want: math.MaxInt64},
		{name: "another operating system", container: fails(memlimit.ErrCgroupsNotSupported), want: math.MaxInt64},
		{name: "GOMEMLIMIT of the user", container: memlimit.Limit(1 << 30), gomemlimit: "512MiB", want: math.MaxInt64},
		{name: "a limit that cannot be read", container: fails(errors.New("permission denied")), want: math.MaxInt64, logs: []string{"warn Could not set the soft memory limit, set GOMEMLIMIT"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			unset(t, "AUTOMEMLIMIT")
			unset(t, "GOMEMLIMIT")
			if tt.gomemlimit != "" {
				t.Setenv("GOMEMLIMIT", tt.gomemlimit) // the runtime reads it at the start of a process alone
			}
			debug.SetMemoryLimit(math.MaxInt64)
			core, logs := zaptest.New(zapcore.DebugLevel)
			setLimit(zap.New(core), tt.container)
			assert.Equal(t, tt.want, debug.SetMemoryLimit(-1))
			var lines []string
			for _, e := range logs.All() {
				lines = append(lines, e.Level.String()+" "+e.Message)
			}
			assert.Equal(t, tt.logs, lines)
		})
	}
}

// Set must not fail on any machine that runs the tests.
func TestSetHere(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	unset(t, "GOMEMLIMIT")
	core, logs := zaptest.New(zapcore.WarnLevel)
	Set(zap.New(core))
	assert.Zero(t, logs.Len(), "%v", logs.All())
}
