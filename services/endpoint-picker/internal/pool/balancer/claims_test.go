package balancer

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

func TestClaims(t *testing.T) {
	t.Parallel()
	var c claims
	assert.Equal(t, 100, c.limit(100))
	assert.Equal(t, leastClaim, c.limit(16<<20))
	answered := exchange.Record{RequestBytes: 1 << 20, PromptTokens: 300_000, Outcome: exchange.Completed, Status: 200}
	for _, change := range []func(r *exchange.Record){
		func(r *exchange.Record) { r.RequestBytes = 0 }, func(r *exchange.Record) { r.Outcome = exchange.Interrupted }, func(r *exchange.Record) { r.Status = 400 },
		func(r *exchange.Record) { r.PromptTokens = 10 },
	} {
		r := answered
		change(&r)
		c.learn(&r)
		assert.Equal(t, leastClaim, c.limit(16<<20))
	}
	c.learn(&answered)
	assert.Equal(t, 300_000, c.limit(16<<20))
	assert.Equal(t, 200_000, c.limit(200_000))
}

// TestClaimedPromptIsLimited has a digest that claims more than any prompt that was seen.
func TestClaimedPromptIsLimited(t *testing.T) {
	t.Parallel()
	r := newRig(t, snapshotOf(newEndpoint("10.0.0.1:8000")))
	x := r.placed(t, api.Incoming{Digest: &api.Digest{Model: "m", Tokens: 16 << 20, Size: 1}})
	assert.Equal(t, leastClaim, x.PromptTokens)
}
