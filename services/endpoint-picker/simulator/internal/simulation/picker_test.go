package simulation

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// watched is a policy of which a test can see the fleet and the replicas.
type watched struct {
	Policy

	fleet    *fleet
	replicas []*replica
}

func watch(p Policy) *watched {
	w := &watched{}
	w.Policy = Policy{Name: p.Name, start: func(f *fleet) chooser {
		c := p.start(f)
		w.fleet, w.replicas = f, c.(*picker).replicas
		return c
	}}
	return w
}

// short is a scenario of a few seconds.
func short(s Scenario) Scenario {
	s.Warm, s.Measured = time.Second, 3*time.Second
	return s
}

func TestReplicasKnowOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		split Split
	}{
		{"in turn", InTurn},
		{"at random", AtRandom},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			trace := short(find(t, StandardScenarios(), "zipf")).withServers(4).Trace(1)
			w := watch(IndependentPickers(3, tt.split))
			r := trace.Run(w.Policy)
			assert.Zero(t, r.Failed)
			total := int64(0)
			for _, one := range w.replicas {
				picks := int64(0)
				for _, m := range one.members {
					picks += m.endpoint.StatsAt(w.fleet.timeline.Now()).Picks
				}
				assert.InEpsilon(t, len(trace.arrivals)/3, picks, 0.15)
				total += picks
			}
			assert.EqualValues(t, len(trace.arrivals), total)
		})
	}
}

// When all requests have ended the picker counts none, and its pages agree with it.
func TestPickerHearsOfTheEndOfAllRequests(t *testing.T) {
	t.Parallel()
	for _, s := range []Scenario{
		find(t, StandardScenarios(), "churn"), find(t, StandardScenarios(), "multiturn"), find(t, OtherScenarios(), "mixed-half-whole"),
	} {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			trace := short(s).withServers(4).Trace(1)
			w := watch(IndependentPickers(2, InTurn))
			trace.Run(w.Policy)
			line := w.fleet.timeline
			now := line.now
			line.runWhile(func() bool { return line.now < now+3*time.Second })
			for _, r := range w.replicas {
				for _, m := range r.members {
					stats := m.endpoint.StatsAt(line.Now())
					assert.Zero(t, stats.InFlight)
					assert.Zero(t, stats.Backlog)
					assert.True(t, stats.Sampled)
					assert.Equal(t, endpoint.Gauges{
						Blocks: UsualEngine().Blocks, Alignment: 16, Counted: true, Queries: float64(m.server.queries), Hits: float64(m.server.hits),
					}, stats.Gauges)
					assert.Less(t, stats.SampleAge, 2*r.scraping.interval.Slowest)
					assert.Zero(t, m.endpoint.Load().Requests)
				}
			}
		})
	}
}

func TestPickerSeesADeadServerAndANewOne(t *testing.T) {
	t.Parallel()
	s := find(t, StandardScenarios(), "churn").withServers(4)
	s.Measured = 9 * time.Second // it dies three seconds after the warm-up
	w := watch(IndependentPickers(1, InTurn))
	var ejected, dead bool
	var picks int64
	trace := s.Trace(1)
	const dying = 1 // by the seed
	dies := s.Warm + 3*time.Second
	p := Policy{start: func(f *fleet) chooser {
		c := w.start(f)
		f.timeline.scheduleAt(dies+time.Second, func() {
			m := w.replicas[0].members[dying]
			ejected, dead, picks = m.endpoint.Health().IsEjected(), m.server.dead, m.endpoint.StatsAt(f.timeline.Now()).Picks
		})
		return c
	}}
	assert.Zero(t, trace.Run(p).Failed)
	assert.True(t, dead)
	assert.Positive(t, picks, "it had requests")
	assert.True(t, ejected, "its pod is there still, and yet it gets no more")
	members := w.replicas[0].members
	require.Len(t, members, 4, "one less and one more")
	newest := members[3]
	assert.Equal(t, 4, newest.server.number)
	assert.True(t, newest.endpoint.StatsAt(w.fleet.timeline.Now()).Sampled)
	for _, m := range members {
		assert.NotEqual(t, dying, m.server.number)
	}
	assert.Len(t, w.replicas[0].Snapshot().Endpoints, 4)
}

// The picker is told what a gateway sees: if a request was streamed it learns how fast servers are.
func TestPickerLearnsSpeedsFromAnswers(t *testing.T) {
	t.Parallel()
	s := find(t, StandardScenarios(), "slow")
	s.Measured, s.Servers = 10*time.Second, s.Servers[:3]
	s.Workload.rate *= 3.0 / usualServers
	w := watch(IndependentPickers(1, InTurn))
	s.Trace(1).Run(w.Policy)
	members := w.replicas[0].members
	for _, m := range members[1:] {
		assert.Greater(t, members[0].endpoint.StatsAt(epoch).Slowdown, 1.3*m.endpoint.StatsAt(epoch).Slowdown, "of the one that is half as fast")
	}
}

func TestSameSeedGivesTheSameResult(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{Greedy(), LeastLoad(), Random(), PinToGroup(), IndependentPickers(1, InTurn), IndependentPickers(2, AtRandom)} {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			s := short(find(t, StandardScenarios(), "churn")).withServers(2)
			r := s.Trace(2).Run(p)
			assert.True(t, reflect.DeepEqual(r, s.Trace(2).Run(p)))
			assert.False(t, reflect.DeepEqual(r, s.Trace(3).Run(p)))
		})
	}
}
