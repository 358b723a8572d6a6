package memory

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

var (
	begin  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a      = snapshot.VariantKey{Namespace: "ns", Name: "a"}
	group1 = snapshot.GroupKey{Namespace: "ns", Pool: "p", Model: "m"}
)

func at(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }

func TestHeld(t *testing.T) {
	t.Parallel()
	m := New(5 * time.Minute)
	assert.Equal(t, 4, m.VariantFor(a, at(0)).StabilizedReplicas(4, at(0)), "nobody knows what was wanted before")
	m.VariantFor(a, at(0)).RecordDecision(2, 4, at(0))
	assert.Equal(t, 4, m.VariantFor(a, at(299)).StabilizedReplicas(4, at(299)))
	assert.Equal(t, 2, m.VariantFor(a, at(300)).StabilizedReplicas(4, at(300)), "the window has passed")
	m.VariantFor(a, at(300)).RecordDecision(5, 5, at(300))
	m.VariantFor(a, at(360)).RecordDecision(1, 5, at(360))
	m.VariantFor(a, at(420)).RecordDecision(3, 5, at(420))
	assert.Equal(t, 5, m.VariantFor(a, at(600)).StabilizedReplicas(5, at(600)), "the end of the window belongs to it")
	assert.Equal(t, 3, m.VariantFor(a, at(601)).StabilizedReplicas(5, at(601)))
	assert.Equal(t, 0, m.VariantFor(a, at(721)).StabilizedReplicas(5, at(721)))
}

// TestRestoredStart: a new leader begins with the time that the last one knew. Starts that it sees displace it, not those of pods that were
// ready before: some have been unready since.
func TestRestoredStart(t *testing.T) {
	t.Parallel()
	m := New(5 * time.Minute)
	pod := func(name string, created, ready int) snapshot.Pod {
		return snapshot.Pod{Name: name, Created: at(created), Ready: at(ready)}
	}
	m.VariantFor(a, at(9000)).RestoreStart(100 * time.Second)
	old := pod("old", 0, 8000)
	assert.Equal(t, 100*time.Second, m.VariantFor(a, at(9000)).ObserveStarts([]snapshot.Pod{old, {Name: "new", Created: at(8990)}}))
	assert.Equal(t, 40*time.Second, m.VariantFor(a, at(9040)).ObserveStarts([]snapshot.Pod{old, pod("new", 8990, 9030), pod("newer", 9000, 9020)}),
		"of 100, 40 and 20")
	assert.Equal(t, 40*time.Second, m.VariantFor(a, at(9050)).ObserveStarts([]snapshot.Pod{pod("newest", 9000, 9030)}), "of 100, 40, 20 and 30")
	m.VariantFor(a, at(9060)).RestoreStart(time.Hour)
	assert.Equal(t, 40*time.Second, m.VariantFor(a, at(9060)).ObserveStarts(nil), "it has seen starts")
}

// TestHeldAfterADrop: once the memory knows how long replicas start, a load that fell is believed after that time, and noise is held.
func TestHeldAfterADrop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		start  int // seconds, 0: not known
		wanted []int
		want   []int // held then
	}{
		{"unknown start", 0, []int{8, 4, 4, 4, 4, 4, 4}, []int{8, 8, 8, 8, 8, 8, 4}},
		{"a start of 100 s", 100, []int{8, 4, 4, 4, 4, 4, 4}, []int{8, 8, 5, 5, 5, 5, 4}},
		{"a start of 3 minutes", 180, []int{8, 4, 4, 4, 4, 4, 4}, []int{8, 8, 8, 8, 5, 5, 4}},
		{"a start longer than the window", 900, []int{8, 4, 4, 4, 4, 4, 4}, []int{8, 8, 8, 8, 8, 8, 4}},
		{"an engine that wakes", 5, []int{8, 4, 4, 4, 4, 4, 4}, []int{8, 8, 5, 5, 5, 5, 4}},
		{"noise", 100, []int{8, 7, 7, 7, 7, 7, 7}, []int{8, 8, 8, 8, 8, 8, 7}},
		{"few replicas", 100, []int{2, 1, 1, 1, 1, 1, 1}, []int{2, 2, 2, 2, 2, 2, 1}},
		{"nothing is left", 100, []int{3, 0, 0, 0, 0, 0, 0}, []int{3, 3, 0, 0, 0, 0, 0}},
		{"a drop in steps", 100, []int{12, 8, 6, 4, 4, 4, 4}, []int{12, 12, 10, 8, 5, 5, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := New(5 * time.Minute)
			m.VariantFor(a, at(-600)).StabilizedReplicas(8, at(-600))
			if tt.start > 0 {
				m.VariantFor(a, at(0)).ObserveStarts([]snapshot.Pod{{Name: "x", Created: at(-tt.start), Ready: at(0)}})
			}
			var got []int
			for i, n := range tt.wanted {
				m.VariantFor(a, at(60*i)).RecordDecision(n, n, at(60*i))
				got = append(got, m.VariantFor(a, at(60*i)).StabilizedReplicas(8, at(60*i)))
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// What is remembered of a variant does not grow with passes.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	m := New(time.Hour)
	for i := range 1000 {
		m.VariantFor(a, at(i)).RecordDecision(i%10, 10, at(i))
	}
	assert.LessOrEqual(t, len(m.variants[a].wanted), 10)
	assert.Equal(t, 9, m.VariantFor(a, at(1000)).StabilizedReplicas(0, at(1000)))
}

func TestPrevious(t *testing.T) {
	t.Parallel()
	v := New(time.Minute).VariantFor(a, at(0))
	assert.Equal(t, 0, v.Previous)
	assert.False(t, v.Decided)
	v.StabilizedReplicas(3, at(0))
	assert.False(t, v.Decided, "it was only seen")
	v.RecordDecision(1, 2, at(1))
	assert.Equal(t, 2, v.Previous)
	assert.True(t, v.Decided)
}

func TestChanged(t *testing.T) {
	t.Parallel()
	m := New(time.Minute)
	assert.Equal(t, at(5), m.GroupFor(group1, at(5)).Changed)
	m.GroupFor(group1, at(10)).RecordDecision(3, "", at(10))
	m.GroupFor(group1, at(20)).RecordDecision(3, "", at(20))
	assert.Equal(t, at(5), m.GroupFor(group1, at(25)).Changed)
	m.GroupFor(group1, at(30)).RecordDecision(2, "", at(30))
	assert.Equal(t, at(30), m.GroupFor(group1, at(40)).Changed)
}

func TestStart(t *testing.T) {
	t.Parallel()
	m := New(time.Minute)
	pod := func(name string, took int) snapshot.Pod {
		return snapshot.Pod{Name: name, Created: at(0), Ready: at(took)}
	}
	starting := snapshot.Pod{Name: "z", Created: at(0)}
	assert.Zero(t, m.VariantFor(a, at(0)).ObserveStarts([]snapshot.Pod{starting}))
	assert.Equal(t, 100*time.Second, m.VariantFor(a, at(200)).ObserveStarts([]snapshot.Pod{pod("p1", 100), starting}))
	again := pod("p1", 1000) // it was not ready for a while
	assert.Equal(t, 100*time.Second, m.VariantFor(a, at(1000)).ObserveStarts([]snapshot.Pod{again}), "only its first start counts")
	assert.Equal(t, 90*time.Second, m.VariantFor(a, at(1000)).ObserveStarts([]snapshot.Pod{again, pod("p2", 90), pod("p3", 5)}))
	var many []snapshot.Pod
	for i := range 7 {
		many = append(many, pod(fmt.Sprintf("q%d", i), 20))
	}
	assert.Equal(t, 20*time.Second, m.VariantFor(a, at(1000)).ObserveStarts(many), "older starts do not count any more")
	assert.Len(t, m.variants[a].pods, 7, "pods that are gone are forgotten")
	assert.Equal(t, 20*time.Second, m.VariantFor(a, at(2000)).ObserveStarts(nil), "also while no pod is there")
	assert.Equal(t, 20*time.Second, m.VariantFor(a, at(2000)).ObserveStarts([]snapshot.Pod{{Name: "r", Created: at(9), Ready: at(3)}}),
		"clocks that disagree")
}

func TestLoad(t *testing.T) {
	t.Parallel()
	feedTo := func(ahead time.Duration, rates ...int64) int64 {
		m := New(time.Minute)
		var rate int64
		for i, r := range rates {
			rate = m.GroupFor(group1, at(60*i)).RecordLoad(r, 0, ahead, at(60*i)).Ahead
		}
		return rate
	}
	feed := func(rates ...int64) int64 { return feedTo(2*time.Minute, rates...) }
	assert.Equal(t, int64(7), feed(1, 3, 7), "too few samples")
	assert.Equal(t, int64(60), feed(10, 20, 30, 40), "10 each minute")
	assert.Equal(t, int64(40), feed(70, 60, 50, 40), "it never lowers the rate")
	assert.Equal(t, int64(100), feed(100, 100, 100, 100))
	assert.Equal(t, int64(80), feedTo(time.Hour, 10, 20, 30, 40), "at most double the largest")
	assert.Equal(t, int64(8), feed(1000, 900, 800, 1, 2, 3, 4, 5, 6), "what was before the window has no effect")
	m := New(time.Minute)
	for range 1000 {
		m.GroupFor(group1, at(1)).RecordLoad(5, 0, time.Minute, at(1))
	}
	assert.Len(t, m.groups[group1].load.samples, maxSamples)
	assert.Equal(t, int64(5), m.GroupFor(group1, at(1)).RecordLoad(5, 0, time.Minute, at(1)).Ahead, "all samples at one time")
}

// TestSteadyLoad has rates in requests per minute, counted over a minute: chance is their square root.
func TestSteadyLoad(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		rates []int64
		want  int64
	}{
		{"the first", []int64{100}, 100},
		{"chance", []int64{90, 110, 95, 105}, 100},
		{"a step up counts at once", []int64{100, 100, 200}, 200},
		{"a step down too", []int64{200, 200, 100}, 100},
		{"after a step", []int64{100, 100, 190, 210}, 200},
		{"few requests differ by chance", []int64{1, 3, 2}, 2},
		{"none are none", []int64{3, 0}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := New(time.Minute)
			var l Load
			for i, r := range tt.rates {
				l = m.GroupFor(group1, at(60*i)).RecordLoad(r*1e6/60, time.Minute, 0, at(60*i))
			}
			assert.InDelta(t, tt.want, float64(l.Steady)*60/1e6, 0.001)
		})
	}
	m := New(time.Minute)
	m.GroupFor(group1, at(0)).RecordLoad(90e6, 0, 0, at(0))
	assert.Equal(t, int64(110e6), m.GroupFor(group1, at(60)).RecordLoad(110e6, 0, 0, at(60)).Steady, "without a window, rates count alone")
}

func TestKeep(t *testing.T) {
	t.Parallel()
	m := New(time.Minute)
	other := snapshot.VariantKey{Namespace: "ns", Name: "b"}
	m.VariantFor(a, at(0)).RecordDecision(1, 1, at(0))
	m.VariantFor(other, at(0)).RecordDecision(1, 1, at(0))
	m.GroupFor(group1, at(0)).RecordDecision(1, "", at(0))
	m.RetainOnly(map[snapshot.VariantKey]bool{a: true}, nil)
	assert.True(t, m.VariantFor(a, at(0)).Decided)
	assert.False(t, m.VariantFor(other, at(0)).Decided)
	assert.Empty(t, m.groups)
}
