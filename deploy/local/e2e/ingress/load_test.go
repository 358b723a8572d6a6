package ingress_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	// Five loads with this interval send 80 requests a second together. At half of it two cores are busy with the requests alone;
	// at double, a gap of the length of a route's update may fall between two requests.
	loadInterval = 60 * time.Millisecond
	// Each fifth request is a stream, of a second and a bit.
	streamEvery  = 5
	streamEvents = 6
	// A model takes its time until it answers.
	wholeQuery  = "?delay=150ms"
	streamQuery = wholeQuery + "&events=6&interval=200ms"
	// In a cluster that exists, each connection goes through its API server and a kubelet: on two cores, which the cluster shared, 80
	// requests a second were held up for 3 s at times, and came too late for the entrance that they were meant for.
	foreignSlowdown = 3
)

// load sends completions to the host of a service until it is stopped, in turn to the data planes that should serve the host at
// the time, like a load balancer or clients that follow DNS.
type load struct {
	host, prefix string         // prefix of the path, which the data plane removes
	from         *regexp.Regexp // names of the pods that may answer

	mu       sync.Mutex
	planes   []*world
	sent     int
	failures []string
	answered map[*world]int // complete answers

	stop    context.CancelFunc
	running sync.WaitGroup
}

// startLoad starts a load without data planes: it sends nothing until switchTo. It ends with the test, or with finish.
func startLoad(t *testing.T, host, from string) *load {
	t.Helper()
	return startLoadOf(t, &load{host: host, from: regexp.MustCompile(from)}, loadInterval)
}

func startLoadOf(t *testing.T, l *load, interval time.Duration) *load {
	t.Helper()
	if os.Getenv(cluster.KubeconfigEnv) != "" {
		interval *= foreignSlowdown
	}
	ctx, cancel := context.WithCancel(t.Context())
	l.answered, l.stop = map[*world]int{}, cancel
	l.running.Go(func() {
		ticker := time.NewTicker(interval)
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

// switchTo sends later requests to these data planes. Requests that are under way stay where they are.
func (l *load) switchTo(planes ...*world) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planes = planes
}

// send sends one request to the next data plane.
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
			l.failures = append(l.failures, fmt.Sprintf("%s %s%s: request %d to %s, for %s: %s",
				begun.Format("15:04:05.000"), l.host, l.prefix, number, plane.base, time.Since(begun).Round(time.Millisecond), failure))
			return
		}
		l.answered[plane]++
	})
}

// ask sends a request and returns what is wrong with the answer.
func (l *load) ask(ctx context.Context, plane *world, stream bool) string {
	ctx, cancel := context.WithTimeout(ctx, kubetest.Patience)
	defer cancel()
	q := question{host: l.host, target: l.prefix + completions + wholeQuery, body: unsized([]byte(`{"messages":[]}`))}
	if stream {
		q.target = l.prefix + completions + streamQuery
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
		return "incomplete stream: " + got.body
	case !stream && got.echo.Path != completions:
		return "with path " + got.echo.Path
	}
	return ""
}

// answers returns the number of requests that a data plane has answered.
func (l *load) answers(plane *world) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answered[plane]
}

// failed returns the failures so far.
func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// finish stops the load, waits for the requests under way and checks that none has failed.
func (l *load) finish(t *testing.T) {
	t.Helper()
	l.end()
	assert.Empty(t, l.failed(), "of %d requests for %s%s", l.sent, l.host, l.prefix)
	assert.Positive(t, l.sent, "%s%s: the load sent nothing", l.host, l.prefix)
	t.Logf("%s%s: %d requests", l.host, l.prefix, l.sent)
}
