package collect

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/promclient"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// roleGroup returns a group with a pod for each role, called as the role.
func roleGroup(roles ...snapshot.Role) Group {
	g := Group{Namespace: "ns", Pool: "p", Model: "m"}
	for _, role := range roles {
		part := groupOf("ns", "m", "pod-"+string(role))
		part.Variants[0].Role = role
		g.Variants = append(g.Variants, part.Variants...)
	}
	return g
}

// serves is the answer on a pod that finishes requests and has some.
func serves(role snapshot.Role, finishes, input, output, runs, waits float64) []promclient.Series {
	pod := "pod-" + string(role)
	return []promclient.Series{
		value(sampled, pod, 990), value(finished, pod, finishes), value(runningGrowth, pod, 0),
		value(inputTokens, pod, finishes*input), value(inputs, pod, finishes), value(outputTokens, pod, finishes*output), value(outputs, pod, finishes),
		value(ttftSum, pod, finishes*2), value(ttftCount, pod, finishes), value(running, pod, runs), value(waiting, pod, waits), value(waitingNow, pod, waits),
		value(kvUsage, pod, 0.5),
	}
}

// answerOf joins answers on pods and one on the picker: 5 requests wait there, and it refuses one per second.
func answerOf(pods ...[]promclient.Series) stub {
	all := []promclient.Series{value(clock, "", 1000), value(pickerReady, "", 1), value(queued, "", 5), value(refused, "", 1)}
	for _, p := range pods {
		all = append(all, p...)
	}
	return always(all...)
}

func TestLoadsOfRoles(t *testing.T) {
	t.Parallel()
	g := roleGroup(snapshot.Prefill, snapshot.Aggregated, snapshot.Decode)
	r := collectOne(t, answerOf(
		serves(snapshot.Prefill, 6, 8000, 1, 1, 20), serves(snapshot.Decode, 4, 8000, 250, 30, 0), serves(snapshot.Aggregated, 3, 1000, 100, 7, 2)), g)

	prefill, decode, whole := r.LoadForRole(snapshot.Prefill), r.LoadForRole(snapshot.Decode), r.LoadForRole(snapshot.Aggregated)
	assert.Equal(t, r.Load, whole)
	assert.Equal(t, int64(6e6), prefill.Rate)
	assert.InDelta(t, 8000, prefill.Input, 1e-6)
	assert.InDelta(t, 1, prefill.Output, 1e-6)
	assert.InDelta(t, 20, prefill.Waiting, 0)
	assert.Equal(t, int64(6e6), decode.Rate, "what prefill servers get comes to decode servers")
	assert.InDelta(t, 250, decode.Output, 1e-6)
	assert.InDelta(t, 5, decode.Queued, 0)
	assert.InDelta(t, 5, prefill.Queued, 0)
	assert.Equal(t, int64(3e6), whole.Rate, "the picker's requests are for a pair")
	assert.Zero(t, whole.Queued)
	assert.InDelta(t, 2, whole.Waiting, 0)

	for i, want := range []struct{ rate, ttft, waiting float64 }{{6, 2000, 20}, {3, 2000, 2}, {4, 0, 0}} { // in the order of the group
		s := r.Variants[i].Sample
		require.NotNil(t, s)
		assert.InDelta(t, want.rate, s.Rate, 1e-6)
		assert.InDelta(t, want.ttft, s.TTFT, 1e-6, "that of a decode server may include the prefill")
		assert.InDelta(t, want.waiting, s.Waiting, 0)
	}
}

// TestPrefillServersThatDecode: what they answer themselves does not come to decode servers.
func TestPrefillServersThatDecode(t *testing.T) {
	t.Parallel()
	g := roleGroup(snapshot.Prefill, snapshot.Decode)
	r := collectOne(t, answerOf(serves(snapshot.Prefill, 6, 8000, 9, 1, 0), serves(snapshot.Decode, 2, 8000, 250, 30, 0)), g)
	assert.Equal(t, int64(2e6), r.LoadForRole(snapshot.Decode).Rate)

	r = collectOne(t, answerOf(serves(snapshot.Prefill, 6, 8000, 9, 1, 20), serves(snapshot.Decode, 2, 8000, 250, 30, 30)), g)
	assert.InDelta(t, 20, r.LoadForRole(snapshot.Prefill).Waiting, 0, "they wait for no decode server")
	assert.NotNil(t, r.Variants[0].Sample)

	r = collectOne(t, answerOf(serves(snapshot.Prefill, 6, 8000, 0, 1, 0), serves(snapshot.Decode, 2, 8000, 250, 30, 0)), g)
	assert.InDelta(t, 1, r.Variants[0].Sample.Output, 0, "an engine that does not count the token of a prefill")
}

// TestPrefillWaitsForDecode: while decode servers have no room, prefill servers keep the KV caches of those that wait. More of them would
// not help.
func TestPrefillWaitsForDecode(t *testing.T) {
	t.Parallel()
	g := roleGroup(snapshot.Prefill, snapshot.Decode)
	tests := []struct {
		name         string
		decodes      []promclient.Series
		wantWaiting  float64
		wantPrefills int64
	}{
		{"room", serves(snapshot.Decode, 4, 8000, 250, 40, 0), 20, 6e6},
		{"a few wait", serves(snapshot.Decode, 4, 8000, 250, 40, 7), 20, 6e6},
		{"a few wait, and the cache is full", append(serves(snapshot.Decode, 4, 8000, 250, 40, 7), value(kvUsage, "pod-decode", 0.4)), 0, 6e6},
		{"one waits for the next step", append(serves(snapshot.Decode, 4, 8000, 250, 40, 0.7), value(kvUsage, "pod-decode", 0.4)), 20, 6e6},
		{"no room", serves(snapshot.Decode, 4, 8000, 250, 40, 8), 0, 6e6},
		{"no decode server has metrics", nil, 20, 6e6},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := collectOne(t, answerOf(serves(snapshot.Prefill, 6, 8000, 1, 1, 20), tt.decodes), g)
			load := r.LoadForRole(snapshot.Prefill)
			assert.InDelta(t, tt.wantWaiting, load.Waiting, 0)
			assert.Equal(t, tt.wantPrefills, load.Rate, "what arrives is known")
			if tt.wantWaiting == 0 {
				assert.Nil(t, r.Variants[0].Sample, "nothing shows what prefill servers can do")
			} else {
				assert.InDelta(t, tt.wantWaiting, r.Variants[0].Sample.Waiting, 0)
			}
			require.Len(t, r.Variants[0].Usages, 1)
			assert.InDelta(t, tt.wantWaiting, r.Variants[0].Usages[0].Waiting, 0)
		})
	}
}

// TestOneRoleWithoutMetrics: the other one has its load all the same.
func TestOneRoleWithoutMetrics(t *testing.T) {
	t.Parallel()
	g := roleGroup(snapshot.Prefill, snapshot.Decode)
	r := collectOne(t, answerOf(serves(snapshot.Prefill, 6, 8000, 1, 1, 0)), g)
	assert.Equal(t, snapshot.Found, r.LoadForRole(snapshot.Prefill).State)
	assert.Equal(t, snapshot.Missing, r.LoadForRole(snapshot.Decode).State)
	assert.Contains(t, r.LoadForRole(snapshot.Decode).Message, "pod-decode")

	failing := stub(func(context.Context, string) ([]promclient.Series, error) { return nil, assert.AnError })
	r = collectOne(t, failing, g)
	assert.Equal(t, snapshot.Failed, r.LoadForRole(snapshot.Prefill).State)
	assert.Equal(t, snapshot.Failed, r.LoadForRole(snapshot.Decode).State)
}

// TestQueryWithoutRoles: models without roles are asked for as before.
func TestQueryWithoutRoles(t *testing.T) {
	t.Parallel()
	asks := func(g Group) string {
		var all []string
		collectOne(t, stub(func(_ context.Context, expr string) ([]promclient.Series, error) {
			all = append(all, expr)
			return idle("pod-"), nil
		}), g)
		return strings.Join(all, "\n")
	}
	for _, metric := range []string{vllmWaitingByReason, vllmFetching, sglangPreallocating} {
		assert.NotContains(t, asks(roleGroup(snapshot.Aggregated)), metric)
		assert.Contains(t, asks(roleGroup(snapshot.Aggregated, snapshot.Prefill)), metric)
	}
}
