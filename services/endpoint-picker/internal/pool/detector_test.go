package pool

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

var detectorStart = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// rig is a Detector over a pool.
type rig struct {
	*Detector

	endpoints []*endpoint.Endpoint
	clock     *clocktesting.FakePassiveClock
	causes    []string
	logs      *zaptest.ObservedLogs
}

func newRig(t *testing.T, n int) *rig {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	r := &rig{clock: clocktesting.NewFakePassiveClock(detectorStart), logs: logs}
	for i := range n {
		id := endpoint.Identity{Namespace: "ns", Pod: fmt.Sprint("pod-", i), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i+1))}
		r.endpoints = append(r.endpoints, endpoint.New(endpoint.Description{Identity: id}, detectorStart, nil))
	}
	observe := func(cause string) { r.causes = append(r.causes, cause) }
	r.Detector = NewDetector(DetectorOptions{Failures: 3, BaseEjection: time.Second, MaxEjection: 4 * time.Second}, zap.New(core), observe, r.clock)
	r.SetEndpoints(r.endpoints)
	return r
}

// respond brings so many responses of an endpoint.
func (r *rig) respond(i int, v request.HealthSignal, n int) {
	for range n {
		r.respondTo(i, v, Response{})
	}
}

// respondTo brings a response of an endpoint to a request of a subject.
func (r *rig) respondTo(i int, v request.HealthSignal, of Response) {
	of.Placed = r.clock.Now()
	if v == request.Answered {
		of.Signal = request.Begun
		r.ObserveResponse(r.endpoints[i], of)
	}
	of.Signal = v
	r.ObserveResponse(r.endpoints[i], of)
}

// usable are the endpoints that may be picked now.
func (r *rig) usable() (list []int) {
	for i, e := range r.endpoints {
		if e.Health().IsUsable(r.clock.Now()) {
			list = append(list, i)
		}
	}
	return list
}

func (r *rig) after(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func TestFailuresInARowEject(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, request.Faulty, 2)
	r.respond(0, request.Answered, 1)
	r.respond(0, request.Faulty, 2)
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "not in a row")
	r.respond(0, request.NoSignal, 10)
	r.respond(0, request.Faulty, 1)
	assert.Equal(t, []int{1, 2, 3}, r.usable())
	r.respond(0, request.Faulty, 5)
	assert.Equal(t, []string{causeResponses}, r.causes, "what was on its way is no news")
	assert.Equal(t, 1, r.logs.FilterMessage("Ejected endpoint").Len())
}

func TestFailuresOutOfProportionEject(t *testing.T) {
	t.Parallel()
	const rounds = 60
	tests := []struct {
		name   string
		signal request.HealthSignal
		own    int // of how many responses of the first endpoint one has the signal
		others int // the same of the others; 0 for none
		want   bool
	}{
		{name: "a tenth fails", signal: request.Faulty, own: 10, want: true},
		{name: "a tenth is refused", signal: request.Doubtful, own: 10, want: true},
		{name: "all is refused", signal: request.Doubtful, own: 1, want: true},
		{name: "one of fifty fails", signal: request.Faulty, own: 50},
		{name: "a tenth fails everywhere", signal: request.Faulty, own: 10, others: 10},
		{name: "all is refused everywhere", signal: request.Doubtful, own: 1, others: 1},
		{name: "half is refused, and a third by the others", signal: request.Doubtful, own: 2, others: 3},
		{name: "half fails, and a thirtieth of the others", signal: request.Faulty, own: 3, others: 30, want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			for i := range rounds {
				for e := range 3 {
					every, signal := tt.others, request.Answered
					if e == 0 {
						every = tt.own
					}
					if every > 0 && i%every == every-1 {
						signal = tt.signal
					}
					r.respond(e, signal, 1)
				}
				r.after(100 * time.Millisecond)
			}
			if tt.want {
				assert.Equal(t, []string{causeResponses}, r.causes[:min(len(r.causes), 1)])
				return
			}
			assert.Empty(t, r.causes)
		})
	}
}

// TestRefusalsOfSteeredRequests has refused requests whose clients may have chosen the endpoint. They eject it only if it answers nothing
// else meanwhile.
func TestRefusalsOfSteeredRequests(t *testing.T) {
	t.Parallel()
	for _, every := range []int{0, 3} {
		r := newRig(t, 3)
		for i := range 30 {
			r.respond(0, request.Steered, 5)
			if every > 0 && i%every == 0 {
				r.respond(0, request.Answered, 1)
			}
			r.respond(1, request.Answered, 1)
			r.respond(2, request.Answered, 1)
			r.after(time.Millisecond)
		}
		if every == 0 {
			assert.Equal(t, []string{causeResponses}, r.causes)
		} else {
			assert.Empty(t, r.causes)
		}
	}
}

// TestAnswersToSteeredRequestsEndEarly has answers that end early for an unknown reason, to requests whose clients may have chosen the
// endpoint. They eject it only if it completes no other answer meanwhile.
func TestAnswersToSteeredRequestsEndEarly(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		prompts int // different ones
		every   int // one of so many answers is whole; 0 for none
		want    []string
	}{
		{name: "the server", prompts: 60, want: []string{causeResponses}},
		{name: "a client", prompts: minDoubtful - 1},
		{name: "clients", prompts: 60, every: 10},
	}
	for _, tt := range tests {
		r := newRig(t, 3)
		for i := range 60 {
			r.respondTo(0, request.Begun, Response{HasContent: true})
			r.respondTo(0, request.Steered, Response{HasContent: true, Failure: "ended early", Prompt: uint64(i % tt.prompts)})
			if tt.every > 0 && i%tt.every == 0 {
				r.respond(0, request.Answered, 1)
			}
			if i%2 == 0 {
				r.respond(1, request.Answered, 1)
				r.respond(2, request.Answered, 1)
			}
			if i == 38 {
				assert.Empty(t, r.causes, "the others have completed too few")
			}
			r.after(time.Millisecond)
		}
		assert.Equal(t, tt.want, r.causes, tt.name)
	}
}

// TestFailuresOfAllEndpoints has a client whose requests all endpoints refuse, or fail at, and others that get one answer for ten of them.
func TestFailuresOfAllEndpoints(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal request.HealthSignal
		of     Response
	}{
		"wrong requests":          {request.Doubtful, base},
		"paths that do not exist": {request.Doubtful, Response{Subject: base.Subject, ModelMissing: true}},
		"steered requests":        {request.Steered, base},
		"unknown models":          {request.Doubtful, missing},
		"failures":                {request.Faulty, base},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 500 {
				r.respondTo(random.IntN(3), request.Answered, base)
				for range 10 {
					r.respondTo(random.IntN(3), tt.signal, tt.of)
				}
				r.after(100 * time.Millisecond)
				if i < 10 {
					r.causes = nil // at first it may have been the endpoint
				}
			}
			assert.Empty(t, r.causes)
			assert.Equal(t, []int{0, 1, 2}, r.usable())
			assert.Nil(t, r.EndpointsLacking(base.Subject))
		})
	}
}

// TestProbesThatSayNothing has an endpoint that was ejected, and a client whose requests all endpoints refuse, or fail at.
func TestProbesThatSayNothing(t *testing.T) {
	t.Parallel()
	for _, signal := range []request.HealthSignal{request.Doubtful, request.Faulty} {
		r := newRig(t, 3)
		r.respond(0, request.Faulty, 3)
		for range 30 {
			r.respond(1, signal, 10)
			r.respond(1, request.Answered, 1)
		}
		r.after(time.Second)
		for range 20 {
			assert.Equal(t, []int{0, 1, 2}, r.usable())
			probe := r.endpoints[0].Acquire()
			r.respond(0, signal, 1)
			probe.Release()
		}
		assert.Equal(t, []string{causeResponses}, r.causes)
	}
}

func TestLogSaysWhyAnEndpointWasEjected(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	for _, failure := range []string{"no answer", "status 500", "status 500"} {
		r.respondTo(0, request.Faulty, Response{Failure: failure})
	}
	r.OnScrapeRefused(r.endpoints[1])
	logs := r.logs.FilterMessage("Ejected endpoint").All()
	assert.Equal(t, []any{"no answer", "status 500", "status 500"}, logs[0].ContextMap()["lastFailures"])
	assert.Contains(t, logs[0].ContextMap()["advice"], "check the log of the model server")
	assert.NotContains(t, logs[1].ContextMap(), "lastFailures")
	assert.Equal(t, "nothing listens on the metrics port", logs[1].ContextMap()["reason"])

	var last recentFailures
	for i := range 12 {
		last.addFailure(fmt.Sprint(i))
	}
	assert.Equal(t, []string{"7", "8", "9", "10", "11"}, last.failureList())
}

// TestReasonsOfEjections reads what the log says of each way to fail, and what the debug page shows.
func TestReasonsOfEjections(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		fail func(r *rig)
		want string
	}{
		{name: "no answer in between", fail: func(r *rig) { r.respond(0, request.Faulty, 3) },
			want: "3 failed requests since its last answer, while other endpoints gave 60 answers; usual are 0.0 failures before an answer"},
		{name: "in between", fail: func(r *rig) {
			for range 3 {
				r.respond(0, request.Answered, 1)
				r.respond(0, request.Faulty, 1)
			}
		}, want: "3 of its last 6 responses failed, and 0 of 60 of the other endpoints; older ones count less"},
		{name: "refusals", fail: func(r *rig) { r.respond(0, request.Doubtful, minDoubtful) },
			want: "5 failed requests since its last answer, while other endpoints gave 60 answers; usual are 0.0 failures before an answer"},
		{name: "early ends", fail: func(r *rig) {
			for i := range minDoubtful {
				r.respondTo(0, request.Doubtful, Response{HasContent: true, Prompt: uint64(i)})
				r.after(time.Millisecond)
				r.respond(1, request.Answered, 2*minWhole)
			}
		}, want: "all answers ended early, to 5 prompts at least, while other endpoints gave 120 whole answers"},
		{name: "refused scrape", fail: func(r *rig) { r.OnScrapeRefused(r.endpoints[0]) }, want: "nothing listens on the metrics port"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, 3)
			r.respond(1, request.Answered, 30)
			r.respond(2, request.Answered, 30)
			tt.fail(r)
			logs := r.logs.FilterMessage("Ejected endpoint").All()
			require.Len(t, logs, 1)
			assert.Equal(t, tt.want, logs[0].ContextMap()["reason"])
			_, reason := r.endpoints[0].Health().LastEjection()
			assert.Equal(t, tt.want, reason)
		})
	}
	r := newRig(t, 3)
	r.respond(0, request.Faulty, 3)
	r.after(time.Second)
	r.endpoints[0].Acquire()
	r.respondTo(0, request.Faulty, Response{Failure: "status 500"})
	cause, reason := r.endpoints[0].Health().LastEjection()
	assert.Equal(t, causeProbe, cause)
	assert.Equal(t, "the request that probed it failed: status 500", reason)
}

func TestOldFailuresCountLess(t *testing.T) {
	t.Parallel()
	r := newRig(t, 3)
	for range 10 {
		for e := range 3 {
			r.respond(e, request.Answered, 10)
		}
		r.respond(0, request.Faulty, 1)
		r.after(5 * decayTime)
	}
	assert.Empty(t, r.causes)
}

func TestProbeBringsBackOrDoublesTheTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, request.Faulty, 3)
	for _, ejection := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		r.after(ejection - time.Millisecond)
		assert.Equal(t, []int{1, 2, 3}, r.usable())
		r.after(time.Millisecond)
		assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "to be probed")
		probe := r.endpoints[0].Acquire()
		assert.Equal(t, []int{1, 2, 3}, r.usable(), "one request at a time")
		r.respond(0, request.Faulty, 1)
		probe.Release()
	}
	assert.Equal(t, []string{causeResponses, causeProbe, causeProbe, causeProbe, causeProbe}, r.causes)
	assert.Equal(t, 1, r.logs.Len(), "said once")
	r.after(4 * time.Second)
	probe := r.endpoints[0].Acquire()
	r.respond(0, request.Answered, 1)
	probe.Release()
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())
	assert.Equal(t, 1, r.logs.FilterMessage("Restored endpoint").Len())
	r.respond(0, request.Faulty, 3)
	r.after(4*time.Second - time.Millisecond)
	assert.Equal(t, []int{1, 2, 3}, r.usable(), "soon after, it goes on with the last time")
	r.after(time.Millisecond)
	r.respond(0, request.Answered, 1)
	r.after(decayTime + time.Millisecond)
	r.respond(0, request.Faulty, 3)
	r.after(time.Second)
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "later it begins with the first time again")
}

// TestEndpointThatReturnsAndFailsAgain has an endpoint that fails sometimes. It must answer more probes each time.
func TestEndpointThatReturnsAndFailsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	for _, want := range []int{1, 1 + trialAnswers, 1 + 2*trialAnswers, 1 + 2*trialAnswers} {
		r.respond(0, request.Faulty, 3)
		r.after(4 * time.Second)
		probes := 0
		for ; r.endpoints[0].Health().IsEjected(); probes++ {
			probe := r.endpoints[0].Acquire()
			assert.Equal(t, []int{1, 2, 3}, r.usable(), "one request at a time")
			r.respond(0, request.Answered, 1)
			probe.Release()
			assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "another probe, or it is back")
		}
		assert.Equal(t, want, probes)
	}
	r.after(2 * decayTime)
	r.respond(0, request.Faulty, 3)
	r.after(time.Second)
	r.respond(0, request.Answered, 1)
	assert.False(t, r.endpoints[0].Health().IsEjected(), "later it begins anew")
}

func TestProbeOfWhichNothingIsKnownIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, request.Faulty, 3)
	r.after(time.Second)
	r.endpoints[0].Acquire().Abandon(r.clock.Now())
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())
}

func TestHalfStaysAndTheLastIsNeverEjected(t *testing.T) {
	t.Parallel()
	tests := []struct{ pool, want int }{{1, 1}, {2, 1}, {3, 2}, {4, 2}, {5, 3}}
	for _, tt := range tests {
		r := newRig(t, tt.pool)
		for i := range tt.pool {
			r.respond(i, request.Faulty, 10)
		}
		assert.Len(t, r.usable(), tt.want, "of %d", tt.pool)
	}
}

func TestRefusedScrapeEjectsUntilOneIsNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.OnScrapeRefused(r.endpoints[0])
	assert.Equal(t, []int{1, 2, 3}, r.usable())
	r.after(999 * time.Millisecond)
	r.OnScrapeRefused(r.endpoints[0])
	assert.Equal(t, []string{causeScrape}, r.causes)
	r.after(time.Millisecond)
	r.OnScrapeRefused(r.endpoints[0])
	assert.Equal(t, []int{1, 2, 3}, r.usable(), "it begins anew")
	r.OnScrape(r.endpoints[0])
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())

	r.respond(1, request.Faulty, 3)
	r.OnScrape(r.endpoints[1])
	assert.Equal(t, []int{0, 2, 3}, r.usable(), "a page is no sign that requests work")
}

func TestNobodyIsEjectedIfThatIsNotWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.options.Failures = 0
	r.respond(0, request.Faulty, 100)
	r.OnScrapeRefused(r.endpoints[1])
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())
}
