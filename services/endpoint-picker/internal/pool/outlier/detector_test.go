package outlier

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

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
	r := &rig{clock: clocktesting.NewFakePassiveClock(noon), logs: logs}
	for i := range n {
		id := endpoint.Identity{Namespace: "ns", Pod: fmt.Sprint("pod-", i), Address: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:8000", i+1))}
		r.endpoints = append(r.endpoints, endpoint.New(endpoint.Description{Identity: id}, noon, nil))
	}
	observed := newMockObserver(t)
	observed.EXPECT().ObserveEjection(mock.Anything).Run(func(cause string) { r.causes = append(r.causes, cause) }).Maybe()
	r.Detector = New(Params{
		Options: Options{Failures: 3, Base: time.Second, Longest: 4 * time.Second}, Log: zap.New(core), Observer: observed, Clock: r.clock,
	})
	r.SetEndpoints(r.endpoints)
	return r
}

// respond brings so many responses of an endpoint.
func (r *rig) respond(i, status, n int) {
	for range n {
		r.Responded(r.endpoints[i], status)
	}
}

// usable are the endpoints that may be picked now.
func (r *rig) usable() (list []int) {
	for i, e := range r.endpoints {
		if e.Health().Usable(r.clock.Now()) {
			list = append(list, i)
		}
	}
	return list
}

func (r *rig) after(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

func TestFailuresInARowEject(t *testing.T) {
	t.Parallel()
	for _, status := range []int{502, 503, 504} {
		r := newRig(t, 4)
		r.respond(0, status, 2)
		r.respond(0, 200, 1)
		r.respond(0, status, 2)
		assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "not in a row")
		r.respond(0, status, 1)
		assert.Equal(t, []int{1, 2, 3}, r.usable())
		r.respond(0, status, 5)
		assert.Equal(t, []string{CauseResponses}, r.causes, "what was on its way is no news")
		assert.Equal(t, 1, r.logs.FilterMessage("Ejected endpoint").Len())
	}
}

func TestOtherResponsesAreNoFailures(t *testing.T) {
	t.Parallel()
	for _, status := range []int{0, 200, 400, 404, 429, 500, 501} {
		r := newRig(t, 4)
		r.respond(0, status, 100)
		assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), status)
	}
}

func TestStatusThatWasNotSeenSaysNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, 503, 2)
	r.respond(0, 0, 1)
	r.respond(0, 503, 1)
	assert.Equal(t, []int{1, 2, 3}, r.usable())
}

func TestProbeBringsBackOrDoublesTheTime(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, 503, 3)
	for _, ejection := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
		r.after(ejection - time.Millisecond)
		assert.Equal(t, []int{1, 2, 3}, r.usable())
		r.after(time.Millisecond)
		assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "to be probed")
		probe := r.endpoints[0].Acquire()
		assert.Equal(t, []int{1, 2, 3}, r.usable(), "one request at a time")
		r.respond(0, 503, 1)
		probe.Release()
	}
	assert.Equal(t, []string{CauseResponses, CauseProbe, CauseProbe, CauseProbe, CauseProbe}, r.causes)
	assert.Equal(t, 1, r.logs.Len(), "said once")
	r.after(4 * time.Second)
	probe := r.endpoints[0].Acquire()
	r.respond(0, 200, 1)
	probe.Release()
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())
	assert.Equal(t, 1, r.logs.FilterMessage("Restored endpoint").Len())
	r.respond(0, 503, 3)
	r.after(time.Second)
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable(), "it begins with the first time again")
}

func TestProbeOfWhichNothingIsKnownIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.respond(0, 503, 3)
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
			r.respond(i, 503, 10)
		}
		assert.Len(t, r.usable(), tt.want, "of %d", tt.pool)
	}
}

func TestRefusedScrapeEjectsUntilOneIsNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.ScrapeRefused(r.endpoints[0])
	assert.Equal(t, []int{1, 2, 3}, r.usable())
	r.after(999 * time.Millisecond)
	r.ScrapeRefused(r.endpoints[0])
	assert.Equal(t, []string{CauseScrape}, r.causes)
	r.after(time.Millisecond)
	r.ScrapeRefused(r.endpoints[0])
	assert.Equal(t, []int{1, 2, 3}, r.usable(), "it begins anew")
	r.Scraped(r.endpoints[0])
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())

	r.respond(1, 503, 3)
	r.Scraped(r.endpoints[1])
	assert.Equal(t, []int{0, 2, 3}, r.usable(), "a page is no sign that requests work")
}

func TestNobodyIsEjectedIfThatIsNotWanted(t *testing.T) {
	t.Parallel()
	r := newRig(t, 4)
	r.options.Failures = 0
	r.respond(0, 503, 100)
	r.ScrapeRefused(r.endpoints[1])
	assert.Equal(t, []int{0, 1, 2, 3}, r.usable())
}
