package balancer

import (
	"net/http"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// leastClaim is the length of a prompt, in tokens, that is always believed: the context of most models. At half the value, prompts of
// clients that send digests alone count for less load than they are, for models with long contexts. At double, a call of 60 bytes can claim
// twice as many seconds of a server.
const leastClaim = 128 << 10

// claims limits what clients claim of prompts that they do not show: to the longest prompt with a body that a server of the pool has answered.
type claims struct{ longest atomic.Int64 }

// limit returns the tokens of a claimed prompt that count.
func (c *claims) limit(tokens int) int { return min(tokens, max(leastClaim, int(c.longest.Load()))) }

// learn records a finished exchange.
func (c *claims) learn(r *exchange.Record) {
	if r.RequestBytes == 0 || r.Outcome != exchange.Completed || r.Status != http.StatusOK {
		return
	}
	for tokens := int64(r.PromptTokens); ; {
		longest := c.longest.Load()
		if tokens <= longest || c.longest.CompareAndSwap(longest, tokens) {
			return
		}
	}
}
