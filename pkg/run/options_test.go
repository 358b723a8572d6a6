package run

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.AddFlags(fs, "Number of Services.", "Delay of Services.")
	require.NoError(t, o.Validate())
	assert.Equal(t, "Number of Services.", fs.Lookup("workers").Usage)
	assert.Equal(t, "Delay of Services.", fs.Lookup("max-retry-delay").Usage)
	require.NoError(t, fs.Parse([]string{"--workers=0", "--discovery-interval=1ms", "--max-retry-delay=1ms", "--leader-election-lease-duration=0s"}))
	err := o.Validate()
	for _, want := range []string{"--workers 0", "--discovery-interval 1ms", "--max-retry-delay 1ms", "--leader-election-lease-duration"} {
		require.ErrorContains(t, err, want)
	}
}
