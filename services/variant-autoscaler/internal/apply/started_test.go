package apply

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/scale"
)

// TestWakingIsNoOverwrite: this program itself gives a target its first replica between two passes, when a request waits.
func TestWakingIsNoOverwrite(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start()
		for range 2 * maxOverwrites {
			assert.True(t, r.apply(t, r.variant("a", "chat", 1, 0)).Applied)
			written, err := r.p.Targets.Start(t.Context(), scale.Object{Namespace: "a", Target: r.variant("a", "chat", 0, 0).Target})
			require.NoError(t, err)
			assert.True(t, written)
			assert.True(t, r.apply(t, r.variant("a", "chat", 1, 1)).Applied)
			time.Sleep(5 * time.Minute)
		}
		assert.Zero(t, r.counts["overwrote"])
	})
}
