package run

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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

func TestUntilCanceled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun, calls := time.Now(), 0
		var failures []error
		UntilCanceled(ctx, time.Minute, func() error {
			if calls++; calls == 3 {
				cancel()
			}
			return fmt.Errorf("call %d", calls)
		}, func(err error) { failures = append(failures, err) })
		assert.Equal(t, "[call 1 call 2]", fmt.Sprint(failures))
		assert.Equal(t, 2*time.Minute, time.Since(begun))
	})
}
