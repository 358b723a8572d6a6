package main

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestREADMENamesEveryFlag(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	s := defaults()
	s.addFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { assert.Contains(t, string(readme), "`--"+f.Name+"`") })
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--no-such-flag"}, {"extra"}, {"--release=1.1"}, {"--runtime-components=engine"}, {"--release=1.3", "--runtime-components=predictor"},
		{"--config-namespace="}, {"--config-ttl=-1s"}, {"--pod-args=--port=1"}, {"--health-probe-bind-address=x"}, {"--kubeconfig=/no/such/file"},
	} {
		require.Error(t, run(t.Context(), args), "%v", args)
	}
}

// stub runs until its context ends, or fails immediately.
type stub struct {
	err   error
	ended func()
}

func (s stub) Run(ctx context.Context) error {
	if s.err == nil {
		<-ctx.Done()
	}
	if s.ended != nil {
		s.ended()
	}
	return s.err
}

func TestRunBoth(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	t.Run("the server ends last", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		cancel()
		require.NoError(t, runBoth(ctx, stub{ended: func() { order = append(order, "work") }}, stub{ended: func() { order = append(order, "server") }}))
		assert.Equal(t, []string{"work", "server"}, order)
	})
	t.Run("a server that fails ends the work", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, runBoth(t.Context(), stub{}, stub{err: broken}), broken)
	})
	t.Run("work that fails ends the server", func(t *testing.T) {
		t.Parallel()
		require.ErrorIs(t, runBoth(t.Context(), stub{err: broken}, stub{}), broken)
	})
}
