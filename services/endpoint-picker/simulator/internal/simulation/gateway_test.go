package simulation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// script is a chooser that takes one server after the other, and notes what its placements are told.
type script struct {
	timeline *timeline
	servers  []*server
	told     []string
}

func (s *script) choosePlacement(*arrival) (placement, bool) {
	if len(s.servers) == 0 {
		return nil, false
	}
	next := s.servers[0]
	if len(s.servers) > 1 {
		s.servers = s.servers[1:]
	}
	return &noted{script: s, on: next}, true
}

func (*script) addServer(*server)    {}
func (*script) removeServer(*server) {}

type noted struct {
	*script

	on *server
}

func (n *noted) note(format string, args ...any) {
	n.told = append(n.told, n.timeline.now.String()+" "+fmt.Sprintf(format, args...))
}

func (n *noted) targetServer() *server     { return n.on }
func (n *noted) travelTime() time.Duration { return hop }
func (n *noted) onStatus(status int)       { n.note("responded %d", status) }
func (n *noted) onFirstPiece()             { n.note("piece") }
func (n *noted) onMoreContent()            { n.note("continued") }
func (n *noted) onClientGone()             { n.note("left") }
func (n *noted) onServerLost()             { n.note("lost") }
func (n *noted) onFailureStart(f *Failure) { n.note("failing %d", f.Response.Status) }
func (n *noted) onFailure(f *Failure)      { n.note("failed %d", f.Response.Status) }

func (n *noted) onEnd(j *job) {
	if j == nil {
		n.note("ended, an error")
		return
	}
	n.note("ended")
}

// street is a gateway before servers of the plain engine, of which the first is dead.
type street struct {
	*gateway

	script     *script
	dead, good *server
}

func newStreet() *street {
	line := &timeline{}
	s := &street{script: &script{timeline: line}, dead: newServer(plain()), good: newServer(plain())}
	s.dead.timeline, s.good.timeline, s.dead.dead = line, line, true
	s.gateway = &gateway{timeline: line, chooser: s.script, open: 1, result: &Result{}}
	return s
}

// run sends a request to these servers, one try after the other.
func (s *street) run(a *arrival, servers ...*server) {
	s.script.servers = servers
	s.timeline.scheduleAt(a.at, func() { s.tryServer(a) })
	s.timeline.runWhile(func() bool { return s.open > 0 })
}

func TestGatewayShowsAnswersAsTheyCome(t *testing.T) {
	t.Parallel()
	s := newStreet()
	s.run(asking(50, 2, 0), s.good)
	assert.Equal(t, []string{"1.0505s responded 200", "1.0505s piece", "2.1505s ended"}, s.script.told)
	assert.Equal(t, 1050*time.Millisecond+hop, s.result.FirstTokenTimes().Mean, "on its way it was for one hop")
	assert.Equal(t, 2150*time.Millisecond+hop, s.result.AnswerTimes().Mean)
	assert.Zero(t, s.result.HitRate())
}

func TestGatewayShowsWholeAnswersAtTheirEnd(t *testing.T) {
	t.Parallel()
	s := newStreet()
	a := asking(50, 2, 0)
	a.stream = false
	s.run(a, s.good)
	assert.Equal(t, []string{"2.1505s responded 200", "2.1505s piece", "2.1505s ended"}, s.script.told)
	assert.Equal(t, 1050*time.Millisecond+hop, s.result.FirstTokenTimes().Mean, "the server had it then")
}

func TestGatewayTriesAgainWhatADeadServerRefuses(t *testing.T) {
	t.Parallel()
	s := newStreet()
	a := asking(50, 1, 0)
	a.at = time.Second
	s.run(a, s.dead, s.good)
	assert.Equal(t, []string{
		"1.0005s responded 503", "1.0005s piece", "1.0005s ended, an error",
		"2.101s responded 200", "2.101s piece", "2.101s ended",
	}, s.script.told)
	assert.Equal(t, 1, s.result.Rejected)
	assert.Equal(t, 3*hop+retryAfter+1050*time.Millisecond, s.result.FirstTokenTimes().Mean, "from when it first came")
	assert.Equal(t, 1, s.result.Requests())
}

func TestGatewayGivesUp(t *testing.T) {
	t.Parallel()
	s := newStreet()
	s.run(asking(50, 1, 0), s.dead)
	assert.Equal(t, 1, s.result.Failed)
	assert.Zero(t, s.result.Requests())
	assert.Greater(t, s.timeline.now, giveUp)
	assert.InDelta(t, float64(giveUp)/float64(retryAfter), s.result.Rejected, 10)

	s = newStreet()
	s.run(asking(50, 1, 0))
	assert.Equal(t, Result{Failed: 1}, *s.result, "the picker has refused it")
}

func TestAnswersOfAServerThatDies(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		stream bool
		dies   time.Duration
		last   string // that the first placement is told
		lost   int
	}{
		{"before its first token", true, 500 * time.Millisecond, "500.25ms ended, an error", 0},
		{"in the middle", true, 1500 * time.Millisecond, "1.50025s lost", 1},
		{"in the middle, and nothing was shown", false, 1500 * time.Millisecond, "1.50025s ended, an error", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStreet()
			dying := newServer(plain())
			dying.timeline = s.timeline
			s.timeline.scheduleAt(tt.dies, dying.kill)
			a := asking(50, 2, 0)
			a.stream = tt.stream
			s.run(a, dying, s.good)
			require.Contains(t, s.script.told, tt.last)
			assert.Equal(t, tt.lost, s.result.Lost)
			assert.Equal(t, 1, s.result.Requests(), "it counts, whatever it had")
			assert.Zero(t, s.result.Rejected)
			if tt.lost == 0 {
				assert.Contains(t, s.script.told[len(s.script.told)-1], "ended", "by the other")
				assert.Positive(t, s.result.AnswerTimes().Mean)
			}
		})
	}
}
