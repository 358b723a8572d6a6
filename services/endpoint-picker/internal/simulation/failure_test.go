package simulation

import (
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

// oneToken is the beginning of a stream.
const oneToken = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"

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
	"half an answer":        {Response: exchange.Response{Status: 200, Events: true}, Body: oneToken},
	"cut":                   {Response: exchange.Response{Status: 200, Events: true}, Body: oneToken, Cut: true},

	"cut behind a gateway":                 {Response: exchange.Response{Status: 200, Events: true}, Body: oneToken, Cut: true, Unclear: true},
	"cut before content, behind a gateway": {Response: exchange.Response{Status: 200, Events: true}, Cut: true, Unclear: true},
}

// stalled is a server that sends one token, and nothing more. Clients go after their patience.
func stalled(patience time.Duration, gateway bool) Failure {
	return Failure{Response: exchange.Response{Status: 200, Events: true}, Body: oneToken, Stalls: true, Unclear: gateway, After: patience}
}

// failingTrace returns 30 s of 500 requests to three servers. No two prompts have a beginning in common.
var failingTrace = sync.OnceValue(func() *Trace {
	s := usual("failing", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 160}.Workload(1)).of(3)
	s.Workload.rate = 500.0 / 30
	s.Warm, s.Measured = 0, 30*time.Second
	return s.Trace(1)
})

// coldTrace returns 20 s of 1000 requests with short answers to three servers, which take some more time to the first token: many requests come
// before a new picker has seen any answer.
func coldTrace(first time.Duration) *Trace {
	s := usual("cold", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 16}.Workload(50)).of(3)
	s.Workload.rate = 50
	s.Warm, s.Measured = 0, 20*time.Second
	for i := range s.Servers {
		s.Servers[i].Extra = first
	}
	return s.Trace(1)
}

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

// TestFailingServerAtAColdStart has one of three servers that fails while the first requests to the others are still computed.
func TestFailingServerAtAColdStart(t *testing.T) {
	t.Parallel()
	for _, first := range []time.Duration{200 * time.Millisecond, time.Second} {
		trace := coldTrace(first)
		for name, failure := range failures {
			for _, every := range []int{1, 10} {
				failure.Every = every
				r := trace.failing(failure, 1).Run(Picker(1, InTurn))
				early, late := r.parts(500)
				assert.LessOrEqual(t, early, 0.03, "%s, one of %d, %s", name, every, first)
				assert.LessOrEqual(t, late, 0.01, "%s, one of %d, %s", name, every, first)
			}
		}
	}
}

// TestStalledServerGetsFewRequests has one of three servers that stops after the first token.
func TestStalledServerGetsFewRequests(t *testing.T) {
	t.Parallel()
	for _, gateway := range []bool{false, true} {
		for _, patience := range []time.Duration{time.Second, 1500 * time.Millisecond, 2500 * time.Millisecond, 4 * time.Second} {
			traces := map[string]*Trace{"usual": failingTrace()}
			for _, first := range []time.Duration{0, 200 * time.Millisecond, time.Second} {
				traces[first.String()] = coldTrace(first)
			}
			for name, trace := range traces {
				failure := stalled(patience, gateway)
				failure.Every = 1
				r := trace.failing(failure, 1).Run(Picker(1, InTurn))
				early, late := r.parts(500)
				assert.LessOrEqual(t, early, 0.03, "%s %s behind a gateway: %t", name, patience, gateway)
				assert.LessOrEqual(t, late, 0.01, "%s %s behind a gateway: %t", name, patience, gateway)
			}
			failure := stalled(patience, gateway)
			failure.Every = 10
			r := failingTrace().failing(failure, 1).Run(Picker(1, InTurn))
			early, late := r.parts(500)
			assert.LessOrEqual(t, early, 0.03, "one of ten, %s behind a gateway: %t", patience, gateway)
			assert.LessOrEqual(t, late, 0.015, "one of ten, %s behind a gateway: %t", patience, gateway) // five must be judged, after their patience
		}
	}
}

// upstreamScorers is a picker with the scorers of the upstream default configuration, which go by metrics pages and prompts.
func upstreamScorers(t *testing.T) Policy {
	t.Helper()
	return ConfiguredPicker("upstream", 1, func(o pluginconfig.Options) *pluginconfig.Config {
		c, err := pluginconfig.Load([]byte(`{apiVersion: llm-d.ai/v1alpha1, kind: EndpointPickerConfig, plugins: [
			{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}, {type: max-score-picker}],
			schedulingProfiles: [{name: default, plugins: [
				{pluginRef: queue-scorer, weight: 2}, {pluginRef: kv-cache-utilization-scorer, weight: 2}, {pluginRef: prefix-cache-scorer, weight: 3},
				{pluginRef: max-score-picker}]}]}`), o)
		require.NoError(t, err)
		return c
	})
}

// TestFailingServerWithUpstreamScorers has a server that the scorers like: its page has no queue, and its cache is empty.
func TestFailingServerWithUpstreamScorers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		failure Failure
		first   time.Duration // to the first token
		most    float64       // part of the early requests
	}{
		"500":                      {failures["500"], 0, 0.03},
		"refused":                  {failures["refused by validation"], 0, 0.03},
		"refused, slow others":     {failures["refused by validation"], time.Second, 0.03},
		"cut":                      {failures["cut behind a gateway"], time.Second, 0.03},
		"silent":                   {Failure{Silent: true, After: 3 * time.Second}, 0, 0.03},
		"silent, slower others":    {Failure{Silent: true, After: 3 * time.Second}, 200 * time.Millisecond, 0.05}, // of 0.04 until the first answer of others
		"stalled":                  {stalled(3*time.Second, false), 0, 0.03},
		"stalled, slow others":     {stalled(3*time.Second, false), time.Second, 0.03},
		"stalled behind a gateway": {stalled(3*time.Second, true), 0, 0.03},
	} {
		for _, whole := range []bool{false, true} {
			trace := coldTrace(tt.first)
			if whole {
				if tt.failure.Stalls {
					continue // it is like a silent one
				}
				s := trace.scenario
				s.Workload = s.Workload.inOnePiece(1)
				trace = s.Trace(1)
			}
			tt.failure.Every = 1
			r := trace.failing(tt.failure, 1).Run(upstreamScorers(t))
			early, late := r.parts(500)
			assert.LessOrEqual(t, early, tt.most, "%s %t", name, whole)
			assert.LessOrEqual(t, late, 0.01, "%s %t", name, whole)
		}
	}
}

// TestAnswersThatAreCutWherePromptsAre has a server that begins to cut all answers when it has some prompts in its cache, so that their clients may
// have chosen it, behind a gateway that does not say who ended them.
func TestAnswersThatAreCutWherePromptsAre(t *testing.T) {
	t.Parallel()
	const from = 8 * time.Second
	trace := usual("skewed", skewed.Workload(100)).of(3).Trace(1)
	failure := failures["cut behind a gateway"]
	failure.Every, failure.From = 1, from
	r := trace.failing(failure, 1).Run(Picker(1, InTurn))
	for i := range r.failures {
		r.failures[i] -= from
	}
	early, late := r.parts(500)
	assert.LessOrEqual(t, early, 0.03)
	assert.LessOrEqual(t, late, 0.01)
}

// leaving returns the same requests, of which clients leave some after the first token. It says how many.
func (t *Trace) leaving(after time.Duration, who func(a *arrival) bool) (*Trace, int) {
	with, n := *t, 0
	with.arrivals = make([]*arrival, len(t.arrivals))
	for i, a := range t.arrivals {
		leaving := *a
		if who(a) {
			leaving.leaves = after
			n++
		}
		with.arrivals[i] = &leaving
	}
	return &with, n
}

// TestClientsThatLeaveEjectNobody has clients that leave while they receive answers, behind a gateway that does not say so: a tenth of all
// requests, or one client with all its requests, which are a twentieth, and whose prompts keep them on few
// servers.
func TestClientsThatLeaveEjectNobody(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]Scenario{
		"unique": usual("unique", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 160}.Workload(64)),
		"skewed": usual("skewed", skewed.Workload(100)),
		"few":    usual("few", skewed.Workload(100)).of(3),
	} {
		trace := w.Trace(1)
		requests := map[int]int{}
		for _, a := range trace.arrivals {
			requests[a.group]++
		}
		client := trace.arrivals[0].group // it has about a twentieth of the requests
		for group, n := range requests {
			distance := func(n int) int { return max(20*n, trace.Requests()) - min(20*n, trace.Requests()) }
			if d, least := distance(n), distance(requests[client]); d < least || d == least && group < client {
				client = group
			}
		}
		usual, _ := trace.run(t)
		for who, leaves := range map[string]func(a *arrival) bool{
			"a tenth":    func(a *arrival) bool { return a.number%10 == 3 },
			"one client": func(a *arrival) bool { return a.group == client },
		} {
			for _, after := range []time.Duration{time.Millisecond, 100 * time.Millisecond, time.Second} {
				left, n := trace.leaving(after, leaves)
				assert.Positive(t, n)
				got, ejections := left.run(t)
				assert.Zero(t, ejections, "%s: %s leave after %s", name, who, after)
				assert.Less(t, got.TTFT().Mean.Seconds(), 1.2*usual.TTFT().Mean.Seconds(), "%s: %s leave after %s", name, who, after)
				assert.Less(t, usual.apart(&got), 0.1, "%s: %s leave after %s: %v, else %v", name, who, after, got.served, usual.served)
			}
		}
	}
}

// run runs the requests with one picker. It returns its ejections, too.
func (t *Trace) run(tb testing.TB) (r Result, ejections int) {
	tb.Helper()
	p := Picker(1, InTurn)
	inner, made := p.start, (*picker)(nil)
	p.start = func(f *fleet) chooser {
		made = inner(f).(*picker)
		return made
	}
	r = t.Run(p)
	return r, made.replicas[0].ejections
}

// apart returns the part of the requests that went to other servers, by the numbers of servers that have so many.
func (r *Result) apart(other *Result) float64 {
	a, b := slices.Sorted(slices.Values(r.served)), slices.Sorted(slices.Values(other.served))
	apart, all := 0.0, 0.0
	for i := range a {
		apart += math.Abs(float64(a[i]-b[i])) / 2
		all += float64(a[i])
	}
	return apart / all
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
