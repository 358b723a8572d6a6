package simulation

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// failures are the ways in which a server fails fast.
var failures = map[string]Failure{
	"500":                   {Response: exchange.Response{Status: 500}, Body: `{"error":{"message":"internal"}}`},
	"503":                   {Response: exchange.Response{Status: 503}},
	"too many requests":     {Response: exchange.Response{Status: 429}},
	"model missing":         {Response: exchange.Response{Status: 404}, Body: `{"error":{"message":"no such model"}}`},
	"refused by validation": {Response: exchange.Response{Status: 422}},
	"error event":           {Response: exchange.Response{Status: 200, Events: true}, Body: `data: {"error":{"message":"the queue is full","code":503}}` + "\n\ndata: [DONE]\n\n"},
	"empty stream":          {Response: exchange.Response{Status: 200, Events: true}},
	"comments only":         {Response: exchange.Response{Status: 200, Events: true}, Body: ": ping\n\n"},
	"empty body":            {Response: exchange.Response{Status: 200}},
	"page":                  {Response: exchange.Response{Status: 200, Page: true}, Body: "<html>"},
	"login page":            {Response: exchange.Response{Status: 302}},
	"half an answer":        {Response: exchange.Response{Status: 200, Events: true}, Body: `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"},
	"cut":                   {Response: exchange.Response{Status: 200, Events: true}, Body: `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n", Cut: true},
}

// failingTrace returns 30 s of 500 requests to three servers. No two prompts have a beginning in common.
var failingTrace = sync.OnceValue(func() *Trace {
	s := usual("failing", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 160}.Workload(1)).of(3)
	s.Workload.rate = 500.0 / 30
	s.Warm, s.Measured = 0, 30*time.Second
	return s.Trace(1)
})

// failing returns the same requests to servers of which some fail.
func (t *Trace) failing(f Failure, servers ...int) *Trace {
	with := *t
	with.scenario.Servers = slices.Clone(t.scenario.Servers)
	for _, i := range servers {
		with.scenario.Servers[i].Failure = &f
	}
	return &with
}

// parts returns the parts of the requests that met a failure in the first 10 s, and later.
func (r *Result) parts(requests int) (early, late float64) {
	n := 0
	for _, at := range r.failures {
		if at < 10*time.Second {
			n++
		}
	}
	return float64(n) / float64(requests), float64(len(r.failures)-n) / float64(requests)
}

// TestFailingServerGetsFewRequests has one of three servers that fails, always or a tenth of the time, at once or a little later.
func TestFailingServerGetsFewRequests(t *testing.T) {
	t.Parallel()
	trace := failingTrace()
	for name, failure := range failures {
		for _, every := range []int{1, 10} {
			for _, after := range []time.Duration{0, 50 * time.Millisecond} {
				failure.Every, failure.After = every, after
				r := trace.failing(failure, 1).Run(Picker(1, InTurn))
				early, late := r.parts(trace.Requests())
				assert.LessOrEqual(t, early, 0.03, "%s, one of %d after %s", name, every, after)
				assert.LessOrEqual(t, late, 0.01, "%s, one of %d after %s", name, every, after)
			}
		}
	}
}

// TestSilentServerGetsFewRequests has one of three servers that never answers, always or a tenth of the time. Clients wait for longer than an
// answer takes, and then go.
func TestSilentServerGetsFewRequests(t *testing.T) {
	t.Parallel()
	trace := failingTrace()
	for _, every := range []int{1, 10} {
		for _, patience := range []time.Duration{1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 6 * time.Second} {
			r := trace.failing(Failure{Silent: true, Every: every, After: patience}, 1).Run(Picker(1, InTurn))
			early, late := r.parts(trace.Requests())
			assert.LessOrEqual(t, early, 0.03, "one of %d, %s", every, patience)
			assert.LessOrEqual(t, late, 0.01, "one of %d, %s", every, patience)
		}
	}
}

// TestAllServersFail has servers that all fail: the requests go on to all of them but half.
func TestAllServersFail(t *testing.T) {
	t.Parallel()
	trace := failingTrace()
	for name, failure := range failures {
		failure.Every = 1
		r := trace.failing(failure, 0, 1, 2).Run(Picker(1, InTurn))
		assert.Len(t, r.failures, trace.Requests(), name)
	}
}

// TestWrongRequestsEjectNobody has a quarter of the requests refused by all servers alike.
func TestWrongRequestsEjectNobody(t *testing.T) {
	t.Parallel()
	failure := failures["refused by validation"]
	failure.Every = 4
	r := failingTrace().failing(failure, 0, 1, 2).Run(Picker(1, InTurn))
	least, most := r.PerServer()
	assert.Less(t, float64(most), 1.2*float64(least), "%v", r.served)
}
