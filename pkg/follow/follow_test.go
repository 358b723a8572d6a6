package follow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// text is a source whose state is a text. Texts that begin with "bad" cannot be applied, "later" ones at first.
type text struct {
	turn   sync.Mutex // the steps of a test hold it, except during pause
	now    string
	err    error
	reads  int
	later  error    // of texts that begin with "later"
	events []string // what was applied and rejected, with the seconds since the start
	start  time.Time
}

func (s *text) Read(context.Context) (string, error) {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.reads++
	return s.now, s.err
}

func (s *text) Equal(a, b string) bool { return a == b }

func (s *text) note(event string) {
	s.events = append(s.events, fmt.Sprintf("%s at %v", event, time.Since(s.start).Seconds()))
}

func (s *text) Apply(state string) error {
	switch {
	case state[:3] == "bad":
		return errors.New(state)
	case state[:3] == "lat" && s.later != nil:
		return s.later
	}
	s.note("applied " + state)
	return nil
}

func (s *text) Reject(err error) { s.note("rejected " + err.Error()) }

// pause lets the Follower work for some time. Only then does it work.
func (s *text) pause(d time.Duration) {
	s.turn.Unlock()
	time.Sleep(d)
	synctest.Wait()
	s.turn.Lock()
}

// follow returns a source that is followed until the test ends. The Follower reads it just before the steps of the test.
func follow(t *testing.T, interval time.Duration) *text {
	t.Helper()
	s := &text{now: "one", start: time.Now()}
	s.turn.Lock()
	go New(s, interval, "one").Run(t.Context())
	t.Cleanup(s.turn.Unlock) // after t.Context has ended: the Follower may wait for its turn
	s.pause(time.Millisecond)
	return s
}

func TestStatesAreAppliedWhenTwoReadingsAgree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, 10*time.Second)
		s.pause(30 * time.Second) // nothing new
		assert.Equal(t, 3, s.reads)
		s.now = "two"
		s.pause(30 * time.Second)
		s.now = "bad"
		s.pause(100 * time.Second)
		s.now = "two"
		s.pause(20 * time.Second)
		s.now, s.err = "", errors.New("no file")
		s.pause(100 * time.Second)
		s.now, s.err = "three", nil
		s.pause(20 * time.Second)
		assert.Equal(t, []string{"applied two at 41", "rejected bad at 62", "applied two at 163", "rejected no file at 184", "applied three at 285"}, s.events)
	})
}

func TestHalfWrittenStatesAreNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, time.Second)
		for i := range 20 { // a slow writer
			s.now = fmt.Sprint("bad ", i)
			s.pause(time.Second)
		}
		s.now = "whole"
		s.pause(3 * time.Second)
		assert.Equal(t, []string{"applied whole at 22"}, s.events)
	})
}

func TestChangesThatAreUndoneHaveNoEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, time.Second)
		for range 10 {
			s.now = "two"
			s.pause(time.Second)
			s.now = "one"
			s.pause(time.Second)
		}
		assert.Empty(t, s.events)
	})
}

func TestShortIntervalsConfirmAtTheNextReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, 500*time.Millisecond)
		s.now = "two"
		s.pause(2 * time.Second)
		assert.Equal(t, []string{"applied two at 1"}, s.events)
	})
}

func TestOutagesChangeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, time.Second)
		s.now, s.err = "", fmt.Errorf("get ConfigMap: %w", Unavailable(errors.New("timeout")))
		s.pause(time.Minute)
		s.now, s.err = "two", nil
		s.pause(time.Second)
		s.err = Unavailable(errors.New("timeout"))
		s.pause(time.Second)
		s.err = nil
		s.pause(time.Second)
		assert.Equal(t, []string{"applied two at 63"}, s.events, "an outage between the two readings does not matter")
	})
}

func TestStatesThatMaySucceedLaterAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, time.Second)
		s.now, s.later = "later", fmt.Errorf("prepare: %w", Retry(errors.New("no certificate")))
		s.pause(10 * time.Second)
		s.later = nil
		s.pause(10 * time.Second)
		s.now, s.later = "later again", Retry(errors.New("no key"))
		s.pause(10 * time.Second)
		s.now = "two"
		s.pause(3 * time.Second)
		assert.Equal(t, []string{
			"rejected prepare: no certificate at 2", "applied later at 11",
			"rejected no key at 22", "applied two at 32",
		}, s.events, "reported once")
	})
}

func TestWithoutAnIntervalNothingIsRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, 0)
		s.now = "two"
		s.pause(time.Hour)
		assert.Empty(t, s.events)
		assert.Zero(t, s.reads)
	})
}
