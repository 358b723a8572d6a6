package nodepool_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/kubetest"
)

// loadInterval gives 20 requests a second. With half of them, a gap of the length of a restart may fall between two requests.
const loadInterval = 50 * time.Millisecond

// load sends requests to a pool until it is stopped.
type load struct {
	mu       sync.Mutex
	failures []string
	sent     int
}

// startLoad sends requests for a host to a pool. stop returns when all requests have ended, and checks that none failed and that the server of
// the pool answered all of them.
func (s *system) startLoad(pool, host, server string) (stop func()) {
	s.t.Helper()
	client := s.client(s.entrance(pool, nodeOf(pool)), kubetest.Patience)
	ctx, cancel := context.WithCancel(s.t.Context())
	l := &load{}
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(loadInterval)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				running.Go(func() { l.send(context.WithoutCancel(ctx), client, host, server) })
			}
		}
	})
	return func() {
		s.t.Helper()
		cancel()
		running.Wait()
		assert.Empty(s.t, l.failures, "of %d requests to %s", l.sent, pool)
		assert.Greater(s.t, l.sent, 100, "requests to %s", pool)
	}
}

func (l *load) send(ctx context.Context, client *http.Client, host, server string) {
	begun := time.Now()
	got, err := ask(ctx, client, host)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	if want := (answer{status: http.StatusOK, from: server}); err != nil || got != want {
		l.failures = append(l.failures, fmt.Sprintf("%s, for %s: %v %v", begun.Format("15:04:05.000"), time.Since(begun).Round(time.Millisecond), got, err))
	}
}
