//go:build system

package promql

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// holdsFor returns pages of a picker in which two requests for model m wait at a time.
func holdsFor(metric string, from, until time.Duration) func(ago time.Duration) string {
	return func(ago time.Duration) string {
		requests := 0
		if ago <= from && ago > until {
			requests = 2
		}
		return "llm_d_epp_ready_endpoints{name=\"p\"} 0\n" +
			fmt.Sprintf("%s{fairness_id=\"a\",priority=\"0\",inference_pool=\"p\",model_name=\"alias\",target_model_name=\"m\"} %d\n", metric, requests) +
			fmt.Sprintf("%s{fairness_id=\"a\",priority=\"0\",inference_pool=\"p\",model_name=\"n\",target_model_name=\"\"} 0\n", metric)
	}
}

// TestWaited: a request that came and went is seen for as long as asked for.
func TestWaited(t *testing.T) {
	t.Parallel()
	for _, metric := range []string{collect.NewQueue, collect.LegacyQueue} {
		w := newWorld(t)
		w.scrape(picker("epp", holdsFor(metric, 90*time.Second, 60*time.Second)))
		short, long := group("m", nil), group("m", nil)
		short.Waited, long.Waited = 30*time.Second, 2*time.Minute
		r := w.collect(short, long, group("n", nil))
		assert.Equal(t, []float64{0, 2, 0}, []float64{r[0].Waited, r[1].Waited, r[2].Waited}, metric)
		assert.Zero(t, r[1].Load.Queued)
		assert.True(t, r[1].Picker)
	}
	w := newWorld(t)
	w.scrape(pod("ns", "a", steady("m", 4, 0, 0)))
	assert.False(t, w.collect(group("m", []string{"a"}))[0].Picker)
}

// TestQueues: only models for which requests wait now are in the answer.
func TestQueues(t *testing.T) {
	t.Parallel()
	for _, metric := range []string{collect.NewQueue, collect.LegacyQueue} {
		w := newWorld(t)
		gone := picker("epp-2", holdsFor(metric, 90*time.Second, 60*time.Second))
		gone.labels["namespace"] = "other"
		w.scrape(picker("epp", holdsFor(metric, time.Minute, 0)), gone)
		queues, err := collect.ReadQueues(t.Context(), w.start())
		require.NoError(t, err)
		assert.Equal(t, []snapshot.ModelKey{snapshot.PoolKey{Namespace: "ns", Name: "p"}.WithModel("m")}, queues, metric)
	}
}
