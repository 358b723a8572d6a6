package pick

import (
	"net/http"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// alwaysBelieved is the length of a prompt, in tokens, that is always believed: the context of most models.
const alwaysBelieved = 128 << 10

// promptClaims limits what clients claim of prompts whose requests the picker does not carry: to the longest prompt with a body that it has
// seen answered by a server of the pool.
type promptClaims struct{ longest atomic.Int64 }

// limitTokens returns the tokens of a claimed prompt that count. A text has fewer than bytes, but an image of a few bytes has many.
func (c *promptClaims) limitTokens(tokens, bytes int) int {
	return min(tokens, max(alwaysBelieved, bytes, int(c.longest.Load())))
}

// learnLongest records a request with an answer. Do not call it for a carrier that does not see the body: what it says of the answer is a
// claim, too.
func (c *promptClaims) learnLongest(r *request.Record) {
	if r.RequestBytes == 0 || r.Status != http.StatusOK {
		return
	}
	for tokens := int64(r.PromptTokens); ; {
		longest := c.longest.Load()
		if tokens <= longest || c.longest.CompareAndSwap(longest, tokens) {
			return
		}
	}
}
