package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	// Of one load, of which two run at a time: 50 requests a second, some of them streams.
	loadInterval = 40 * time.Millisecond
	streamEvery  = 5
	streamEvents = 6
	// A model takes its time until it answers. One that answers at once shows a fault of Go's ReverseProxy, and so of Traefik:
	// it may close the request's body while the last of it is read, and then breaks off the answer.
	wholeTarget  = completions + "?delay=20ms"
	streamTarget = wholeTarget + "&events=6&interval=200ms"
	// An answer takes a second and a bit; what takes longer than this was held up.
	loadTimeout = 10 * time.Second
)

// load sends completions to the host of a service without a pause, to one data plane after the other of those that ought to
// serve it at the time: as a load balancer does, or clients that follow DNS.
type load struct {
	host string
	from *regexp.Regexp // pods that may answer

	mu       sync.Mutex
	planes   []*world
	sent     int
	failures []string
	by       map[*world]int // whole answers

	stop    context.CancelFunc
	running sync.WaitGroup
}

// startLoad begins to send, to nobody as yet. It ends with the test, or with finish.
func startLoad(t *testing.T, host, from string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{host: host, from: regexp.MustCompile(from), by: map[*world]int{}, stop: cancel}
	l.running.Go(func() {
		ticker := time.NewTicker(loadInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				l.send(t.Context())
			}
		}
	})
	t.Cleanup(l.end)
	return l
}

// to has requests go to these data planes from now on. Of those that were sent before nothing is taken back.
func (l *load) to(planes ...*world) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planes = planes
}

// send sends one request to the data plane whose turn it is.
func (l *load) send(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.planes) == 0 {
		return
	}
	l.sent++
	number, plane := l.sent, l.planes[l.sent%len(l.planes)]
	l.running.Go(func() {
		begun := time.Now()
		failure := l.ask(ctx, plane, number%streamEvery == 0)
		l.mu.Lock()
		defer l.mu.Unlock()
		if failure != "" {
			l.failures = append(l.failures, fmt.Sprintf("%s %s: request %d to %s, for %s: %s",
				begun.Format("15:04:05.000"), l.host, number, plane.base, time.Since(begun).Round(time.Millisecond), failure))
			return
		}
		l.by[plane]++
	})
}

// ask sends a request and says what is wrong with its answer.
func (l *load) ask(ctx context.Context, plane *world, stream bool) string {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	q := question{host: l.host, target: wholeTarget, body: strings.NewReader(`{"messages":[]}`)}
	if stream {
		q.target = streamTarget
	}
	got, err := plane.ask(ctx, q)
	server := got.header.Get("x-served-by")
	switch {
	case err != nil:
		return fmt.Sprintf("%v, after %d %q", err, got.status, got.body)
	case got.status != http.StatusOK:
		return fmt.Sprintf("%d %s", got.status, got.body)
	case !l.from.MatchString(server):
		return "answered by " + server
	case stream && strings.Count(got.body, "data: ") != streamEvents:
		return "not the whole stream: " + got.body
	case !stream && got.echo.Path != completions:
		return "with path " + got.echo.Path
	}
	return ""
}

// answers is how many requests of a data plane were answered.
func (l *load) answers(plane *world) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.by[plane]
}

// failed returns what has failed so far.
func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// finish waits for what is under way and checks that nothing was lost.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.end()
	assert.Empty(t, l.failed(), "of %d requests for %s", l.sent, l.host)
	t.Logf("%s: %d requests", l.host, l.sent)
}
