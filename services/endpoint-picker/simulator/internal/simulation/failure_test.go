package simulation

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// oneToken is the beginning of a stream.
const oneToken = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"

// failures are the ways in which a server fails fast.
var failures = map[string]Failure{
	"500":                   {Response: request.ResponseHeaders{Status: 500}, Body: `{"error":{"message":"internal"}}`},
	"503":                   {Response: request.ResponseHeaders{Status: 503}},
	"too many requests":     {Response: request.ResponseHeaders{Status: 429}},
	"model missing":         {Response: request.ResponseHeaders{Status: 404}, Body: `{"error":{"message":"no such model"}}`},
	"refused by validation": {Response: request.ResponseHeaders{Status: 422}},
	"error event": {Response: request.ResponseHeaders{Status: 200, Events: true},
		Body: `data: {"error":{"message":"the queue is full","code":503}}` + "\n\ndata: [DONE]\n\n"},
	"empty stream":   {Response: request.ResponseHeaders{Status: 200, Events: true}},
	"comments only":  {Response: request.ResponseHeaders{Status: 200, Events: true}, Body: ": ping\n\n"},
	"empty body":     {Response: request.ResponseHeaders{Status: 200}},
	"page":           {Response: request.ResponseHeaders{Status: 200, HTML: true}, Body: "<html>"},
	"login page":     {Response: request.ResponseHeaders{Status: 302}},
	"half an answer": {Response: request.ResponseHeaders{Status: 200, Events: true}, Body: oneToken},
	"cut":            {Response: request.ResponseHeaders{Status: 200, Events: true}, Body: oneToken, Cut: true},

	"cut behind a gateway": {Response: request.ResponseHeaders{Status: 200, Events: true}, Body: oneToken, Cut: true,
		Unclear: true},
	"cut before content, behind a gateway": {Response: request.ResponseHeaders{Status: 200, Events: true}, Cut: true, Unclear: true},
}

// stalled is a server that sends one token, and nothing more. Clients go after their patience.
func stalled(patience time.Duration, gateway bool) Failure {
	return Failure{Response: request.ResponseHeaders{Status: 200, Events: true}, Body: oneToken, Stalls: true, Unclear: gateway,
		After: patience}
}

// failingTrace returns 30 s of 500 requests to three servers. No two prompts have a beginning in common.
var failingTrace = sync.OnceValue(func() *Trace {
	s := usualScenario("failing", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 160}.Workload(1)).withServers(3)
	s.Workload.rate = 500.0 / 30
	s.Warm, s.Measured = 0, 30*time.Second
	return s.Trace(1)
})

// coldTrace returns 20 s of 1000 requests with short answers to three servers, which take some more time to the first token: many
// requests come before a new picker has seen any answer.
func coldTrace(first time.Duration) *Trace {
	s := usualScenario("cold", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 16}.Workload(50)).withServers(3)
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

// A failingCase is one of three servers that fails.
type failingCase struct {
	name     string
	trace    func() *Trace
	failure  Failure
	policy   func(t *testing.T) Policy
	requests int     // of which these are the most that may meet it
	early    float64 // part in the first 10 s
	late     float64 // part later
}

func (c *failingCase) check(t *testing.T) {
	t.Helper()
	r := c.trace().failing(c.failure, 1).Run(c.policy(t))
	early, late := r.parts(c.requests)
	assert.LessOrEqual(t, early, c.early, c.name)
	assert.LessOrEqual(t, late, c.late, c.name)
}

// cold are the traces of a cold start, by the time to the first token of the other servers.
var cold = map[time.Duration]func() *Trace{
	0:                      sync.OnceValue(func() *Trace { return coldTrace(0) }),
	200 * time.Millisecond: sync.OnceValue(func() *Trace { return coldTrace(200 * time.Millisecond) }),
	time.Second:            sync.OnceValue(func() *Trace { return coldTrace(time.Second) }),
}

// failingCases are all cases: servers that fail, always or a tenth of the time, at once or a little later, while the others work or have
// not begun to answer; that never answer; that stop after the first token; and the same with upstream's scorers. Clients wait for longer
// than an answer takes, and then go.
func failingCases() (all []failingCase) {
	add := func(name string, trace func() *Trace, f Failure, every int) *failingCase {
		f.Every = every
		all = append(all, failingCase{
			name: fmt.Sprintf("%s, one of %d", name, every), trace: trace, failure: f,
			policy: func(*testing.T) Policy { return IndependentPickers(1, InTurn) }, requests: 500, early: 0.03, late: 0.01,
		})
		return &all[len(all)-1]
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	for _, every := range []int{1, 10} {
		for name, f := range failures {
			for _, f.After = range []time.Duration{0, 50 * time.Millisecond} {
				add(fmt.Sprintf("%s after %s", name, f.After), failingTrace, f, every)
			}
			for _, first := range []time.Duration{200 * time.Millisecond, time.Second} {
				add(fmt.Sprintf("%s at a cold start, %s", name, first), cold[first], failures[name], every)
			}
		}
		for _, s := range []float64{1.5, 2, 3, 6} {
			add(fmt.Sprintf("silent, patience of %g s", s), failingTrace, Failure{Silent: true, After: seconds(s)}, every)
		}
	}
	for _, gateway := range []bool{false, true} {
		for _, s := range []float64{1, 1.5, 2.5, 4} {
			name := fmt.Sprintf("stalled, patience of %g s, gateway %t", s, gateway)
			f := stalled(seconds(s), gateway)
			add(name, failingTrace, f, 1)
			add(name, failingTrace, f, 10)
			for first, trace := range cold {
				start := fmt.Sprintf("%s, at a cold start, %s", name, first)
				add(start, trace, f, 1)
				if c := add(start, trace, f, 10); s == 4 {
					c.early, c.late = 0.05, 0.02 // five must be judged, after their patience; 0.048, 0.020 after 1 s, else 0.038, 0.002
				}
			}
		}
	}
	return append(all, upstreamCases()...)
}

// upstreamCases have the scorers of the upstream default configuration, which go by metrics pages and prompts, and a server that they
// like: its page has no queue, and its cache is empty.
func upstreamCases() (all []failingCase) {
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
		tt.failure.Every = 1
		trace := cold[tt.first]
		c := failingCase{name: "upstream scorers: " + name, trace: trace, failure: tt.failure, policy: upstreamScorers, requests: 500, early: tt.most, late: 0.01}
		all = append(all, c)
		if tt.failure.Stalls {
			continue // in one piece it is like a silent one
		}
		c.name += ", answers in one piece"
		c.trace = func() *Trace {
			s := trace().scenario
			s.Workload = s.Workload.inOnePiece(1)
			return s.Trace(1)
		}
		all = append(all, c)
	}
	return all
}

// upstreamScorers is a picker with the scorers of the upstream default configuration.
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

// TestFailingServerGetsFewRequestsOnce has a case of each kind. The others are in the long lane.
func TestFailingServerGetsFewRequestsOnce(t *testing.T) {
	t.Parallel()
	once := []string{
		"500 after 0s, one of 1",
		"cut behind a gateway after 0s, one of 1",
		"empty stream at a cold start, 200ms, one of 10",
		"silent, patience of 3 s, one of 1",
		"stalled, patience of 2.5 s, gateway true, one of 1",
		"upstream scorers: refused",
	}
	for _, c := range failingCases() {
		if i := slices.Index(once, c.name); i >= 0 {
			once = slices.Delete(once, i, i+1)
			c.check(t)
		}
	}
	assert.Empty(t, once, "there are no such cases")
}

// TestAnswersThatAreCutWherePromptsAre has a server that begins to cut all answers when it has some prompts in its cache, so that their
// clients may have chosen it, behind a gateway that does not say who ended them.
func TestAnswersThatAreCutWherePromptsAre(t *testing.T) {
	t.Parallel()
	const from = 8 * time.Second
	trace := usualScenario("skewed", skewed.Workload(100)).withServers(3).Trace(1)
	failure := failures["cut behind a gateway"]
	failure.Every, failure.From = 1, from
	r := trace.failing(failure, 1).Run(IndependentPickers(1, InTurn))
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

// leavingClients are the workloads of clients that leave.
var leavingClients = map[string]Scenario{
	"unique": usualScenario("unique", Prefixes{Count: 20_000, Tokens: 256, Own: 64, Answer: 160}.Workload(64)),
	"skewed": usualScenario("skewed", skewed.Workload(100)),
	"few":    usualScenario("few", skewed.Workload(100)).withServers(3),
}

// client returns the client with about a twentieth of the requests.
func (t *Trace) client() int {
	requests := map[int]int{}
	for _, a := range t.arrivals {
		requests[a.group]++
	}
	client := t.arrivals[0].group
	for group, n := range requests {
		distance := func(n int) int { return max(20*n, t.Requests()) - min(20*n, t.Requests()) }
		if d, least := distance(n), distance(requests[client]); d < least || d == least && group < client {
			client = group
		}
	}
	return client
}

// checkLeaving has clients that leave while they receive answers, behind a gateway that does not say so: a tenth of all requests, or one
// client with all its requests, which are a twentieth, and whose prompts keep them on few servers. It ejects nobody.
func checkLeaving(t *testing.T, s Scenario, who string, pauses ...time.Duration) {
	t.Helper()
	trace := s.Trace(1)
	client := trace.client()
	leaves := map[string]func(a *arrival) bool{
		"a tenth":    func(a *arrival) bool { return a.number%10 == 3 },
		"one client": func(a *arrival) bool { return a.group == client },
	}[who]
	usual, _ := trace.run(t)
	for _, after := range pauses {
		left, n := trace.leaving(after, leaves)
		assert.Positive(t, n)
		got, ejections := left.run(t)
		assert.Zero(t, ejections, "%s: %s leave after %s", s.Name, who, after)
		assert.Less(t, got.FirstTokenTimes().Mean.Seconds(), 1.2*usual.FirstTokenTimes().Mean.Seconds(), "%s: %s leave after %s", s.Name, who,
			after)
		assert.Less(t, usual.apart(&got), 0.1, "%s: %s leave after %s: %v, else %v", s.Name, who, after, got.served, usual.served)
	}
}

func TestClientsThatLeaveEjectNobodyOnce(t *testing.T) {
	t.Parallel()
	s := leavingClients["few"]
	s.Warm, s.Measured = 3*time.Second, 12*time.Second
	checkLeaving(t, s, "one client", 100*time.Millisecond)
}

// run runs the requests with one picker. It returns its ejections, too.
func (t *Trace) run(tb testing.TB) (r Result, ejections int) {
	tb.Helper()
	p := IndependentPickers(1, InTurn)
	inner, started := p.start, (*picker)(nil)
	p.start = func(f *fleet) chooser {
		started = inner(f).(*picker)
		return started
	}
	r = t.Run(p)
	return r, started.replicas[0].ejections
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

// checkAllFail has servers that all fail: the requests go on to all of them but half.
func checkAllFail(t *testing.T, name string) {
	t.Helper()
	trace, failure := failingTrace(), failures[name]
	failure.Every = 1
	r := trace.failing(failure, 0, 1, 2).Run(IndependentPickers(1, InTurn))
	assert.Len(t, r.failures, trace.Requests(), name)
}

func TestAllServersFailOnce(t *testing.T) {
	t.Parallel()
	checkAllFail(t, "500")
	checkAllFail(t, "cut behind a gateway")
}

// TestWrongRequestsEjectNobody has a quarter of the requests refused by all servers alike.
func TestWrongRequestsEjectNobody(t *testing.T) {
	t.Parallel()
	failure := failures["refused by validation"]
	failure.Every = 4
	r := failingTrace().failing(failure, 0, 1, 2).Run(IndependentPickers(1, InTurn))
	least, most := r.PerServer()
	assert.Less(t, float64(most), 1.2*float64(least), "%v", r.served)
}
