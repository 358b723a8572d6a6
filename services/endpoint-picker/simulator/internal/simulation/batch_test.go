package simulation

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/steptime"
)

// plain is an engine whose times are easy to add up: a step takes a second, and a millisecond for each prompt token.
func plain() Engine {
	return Engine{
		Slots: 2, Blocks: 100, BlockTokens: 16, Batch: 100,
		Law:      steptime.Law{Base: time.Second, PerSeq: 100 * time.Millisecond, PerToken: time.Millisecond},
		Slowness: 1,
	}
}

// asking is an arrival whose blocks nobody shares: they are numbered from some number on.
func asking(prompt, out, from int) *arrival {
	a := &arrival{prompt: prompt, out: out, blockTokens: 16, stream: true, measured: true}
	for i := range (prompt + out) / 16 {
		a.chain = append(a.chain, int32(from+i))
	}
	return a
}

const contents = 2000

func newServer(e Engine) *server {
	return &server{batch: batch{Engine: e}, timeline: &timeline{}, cache: newBlockCache(e.Blocks, contents)}
}

// log is a watcher that keeps what it was told.
type log struct{ told []string }

func (l *log) onFirstToken(*job) { l.told = append(l.told, "began") }
func (l *log) onMoreTokens(*job) {}
func (l *log) onEnd(*job)        { l.told = append(l.told, "ended") }
func (l *log) onServerLost(*job) { l.told = append(l.told, "lost") }

// serve has a server take requests at once, and returns what became of them.
func serve(s *server, arrivals ...*arrival) []*job {
	var jobs []*job
	for _, a := range arrivals {
		j := &job{arrival: a, watcher: &log{}}
		jobs = append(jobs, j)
		s.enqueue(j)
	}
	s.timeline.runWhile(func() bool { return true })
	return jobs
}

func TestStepsTakeWhatTheyCompute(t *testing.T) {
	t.Parallel()
	slow := plain()
	slow.Slowness = 2
	const (
		s  = time.Second
		ms = time.Millisecond
	)
	for _, tt := range []struct {
		name        string
		engine      Engine
		requests    []*arrival
		first, done []time.Duration
	}{
		{
			name: "a prompt, then tokens one by one", engine: plain(), requests: []*arrival{asking(50, 3, 0)},
			first: []time.Duration{1050 * ms}, done: []time.Duration{1050*ms + 2*1100*ms},
		},
		{
			name: "a slow server", engine: slow, requests: []*arrival{asking(50, 3, 0)},
			first: []time.Duration{2100 * ms}, done: []time.Duration{2100*ms + 2*2200*ms},
		},
		{
			name: "a long prompt in chunks", engine: plain(), requests: []*arrival{asking(250, 1, 0)},
			first: []time.Duration{3250 * ms}, done: []time.Duration{3250 * ms},
		},
		{
			// The second comes when the first step has begun; the first's tokens take their part of the steps.
			name: "another beside it", engine: plain(), requests: []*arrival{asking(50, 3, 0), asking(99, 1, 50)},
			first: []time.Duration{1050 * ms, 1050*ms + 1199*ms}, done: []time.Duration{1050*ms + 1199*ms + 1100*ms, 1050*ms + 1199*ms},
		},
		{
			name: "a third waits for a slot", engine: plain(), requests: []*arrival{asking(50, 2, 0), asking(50, 2, 50), asking(50, 1, 100)},
			first: []time.Duration{1050 * ms, 1050*ms + 1150*ms, 1050*ms + 1150*ms + 1150*ms},
			done:  []time.Duration{1050*ms + 1150*ms, 1050*ms + 1150*ms + 1150*ms, 1050*ms + 1150*ms + 1150*ms},
		},
		{
			// A thousand tokens are ten steps; the other's blocks are not free before.
			name: "another waits for room", engine: plain(), requests: []*arrival{asking(1000, 1, 0), asking(700, 1, 100)},
			first: []time.Duration{11 * s, 11*s + 7700*ms}, done: []time.Duration{11 * s, 11*s + 7700*ms},
		},
		{
			// 48 tokens of 50 are cached.
			name: "the same again", engine: plain(), requests: []*arrival{asking(50, 1, 0), asking(50, 1, 0)},
			first: []time.Duration{1050 * ms, 1050*ms + 1002*ms}, done: []time.Duration{1050 * ms, 1050*ms + 1002*ms},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for i, j := range serve(newServer(tt.engine), tt.requests...) {
				assert.Equal(t, tt.first[i], j.first, "first token of request %d", i)
				assert.Equal(t, tt.done[i], j.done, "last token of request %d", i)
				assert.Equal(t, []string{"began", "ended"}, j.watcher.(*log).told)
			}
		})
	}
}

func TestForecastComesTrueIfNothingElseComes(t *testing.T) {
	t.Parallel()
	e := UsualEngine()
	e.Slots = 5
	s := newServer(e)
	for i := range 12 {
		s.enqueue(&job{arrival: asking(300+100*i, 5+i, 100*i), watcher: &log{}})
	}
	next := asking(500, 1, 1900)
	want := s.forecast(next)
	before := s.requestCount()
	j := serve(s, next)[0]
	assert.Equal(t, want, j.first)
	assert.Equal(t, 12, before, "to look ahead changes nothing")
}

func TestForecastKnowsTheCache(t *testing.T) {
	t.Parallel()
	s := newServer(plain())
	a := asking(96, 1, 0)
	assert.Equal(t, 1096*time.Millisecond, s.forecast(a))
	serve(s, a)
	assert.Equal(t, s.timeline.now+time.Second+16*time.Millisecond, s.forecast(a), "the last token is computed, with its block")
}

func TestDeadServerLosesWhatItHas(t *testing.T) {
	t.Parallel()
	s := newServer(plain())
	var jobs []*job
	for i := range 3 {
		jobs = append(jobs, &job{arrival: asking(40, 5, 10*i), watcher: &log{}})
	}
	for _, j := range jobs {
		s.enqueue(j)
	}
	s.timeline.scheduleAt(1500*time.Millisecond, s.kill)
	s.timeline.runWhile(func() bool { return true })
	assert.Equal(t, []string{"began", "lost"}, jobs[0].watcher.(*log).told)
	assert.Equal(t, []string{"lost"}, jobs[1].watcher.(*log).told)
	assert.Equal(t, []string{"lost"}, jobs[2].watcher.(*log).told)
	assert.Zero(t, s.requestCount())
	assert.Zero(t, jobs[0].done)
}

func TestGaugesTellTheTruth(t *testing.T) {
	t.Parallel()
	s := newServer(plain())
	for i := range 3 {
		s.enqueue(&job{arrival: asking(40, 8, 10*i), watcher: &log{}})
	}
	require.Len(t, s.running, 1, "the others come when its step has begun")
	s.timeline.runWhile(func() bool { return s.timeline.now < 2*time.Second })
	g, _, _ := s.metricsPage()
	assert.EqualValues(t, 1, g.Waiting)
	assert.EqualValues(t, 2, g.Running)
	assert.InDelta(t, 0.06, g.KVUsage, 1e-9) // three blocks each, of a hundred
	assert.Equal(t, 100, g.Blocks)
	assert.Equal(t, "10.0.0.0:8000", s.address().String())
}

func TestTimelineGoesFromOneThingToTheNext(t *testing.T) {
	t.Parallel()
	line := &timeline{}
	var got []string
	say := func(what string) func() { return func() { got = append(got, what) } }
	line.scheduleAt(3*time.Second, say("third"))
	line.scheduleAt(time.Second, func() {
		say("first")()
		line.scheduleAfter(time.Second, say("second, asked for later"))
	})
	line.scheduleAt(2*time.Second, say("second"))
	line.scheduleAt(4*time.Second, say("not reached"))
	line.runWhile(func() bool { return len(got) < 4 })
	assert.Equal(t, []string{"first", "second", "second, asked for later", "third"}, got)
	assert.Equal(t, epoch.Add(3*time.Second), line.Now())
	assert.Equal(t, 2*time.Second, line.Since(epoch.Add(time.Second)))
}

func TestTimesOfManyThings(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(i+1)*time.Second)
	}
	slices.Reverse(all)
	assert.Equal(t, Times{Mean: 50500 * time.Millisecond, P50: 51 * time.Second, P90: 91 * time.Second, P99: 100 * time.Second}, NewTimes(all))
	assert.Zero(t, NewTimes(nil))
}
