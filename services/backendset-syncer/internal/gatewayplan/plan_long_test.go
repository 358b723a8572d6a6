//go:build long

package gatewayplan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestManyBadRoutes plans thousands of rules that cannot be programmed: the time is linear in their number.
func TestManyBadRoutes(t *testing.T) {
	t.Parallel()
	took := func(n int) time.Duration {
		r := newRig(t)
		r.gateway("web", "", "", webListener)
		rule := "{filters: [{type: URLRewrite, urlRewrite: {hostname: a.example.com}}]}"
		for i := range n {
			r.route("models", fmt.Sprint("bad", i), "rules: ["+strings.Repeat(rule+", ", 15)+rule+"]")
		}
		planner := r.planner()
		resolution := planner.ResolveGateways()
		least := time.Hour
		for range 3 { // other tests take time, too
			began := time.Now()
			in := resolution.NewInput(balancerID)
			in.Live, in.Now = r.live, r.now
			p := planner.BuildPlan(resolution, in)
			least = min(least, time.Since(began))
			assert.Len(t, p.Routes, n)
		}
		return least
	}
	small, large := took(100), took(1600)
	assert.Less(t, large, 80*small, "16 times the routes take 16 times as long, not 256 times: %s and %s", small, large)
}
