package main

import (
	"net/http"
	"os"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/chatload"
)

func TestREADMENamesEveryFlag(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addFlags(fs, &chatload.Options{})
	fs.VisitAll(func(f *pflag.Flag) { assert.Contains(t, string(readme), "`--"+f.Name+"`") })
}

func TestParseHeaders(t *testing.T) {
	t.Parallel()
	got, err := parseHeaders([]string{"x-fault: slow=4", "X-Fault:hang", "host: a:80"})
	require.NoError(t, err)
	assert.Equal(t, http.Header{"X-Fault": {"slow=4", "hang"}, "Host": {"a:80"}}, got)
	_, err = parseHeaders([]string{"x-fault"})
	require.ErrorContains(t, err, "has no colon: give NAME: VALUE")
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--no-such-flag"}, {"extra"}, {"--header", "x"}, {"--concurrency=1", "--rate=1"}, {"--url=x"}} {
		require.Error(t, run(t.Context(), args), "%v", args)
	}
}
