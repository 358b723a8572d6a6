//go:build system

package modelserver

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// refusals counts refused connections.
type refusals int

func (r *refusals) observe(_ time.Duration, err error) {
	if errors.Is(err, errRefused) {
		*r++
	}
}

// TestSocketsOfAModelServer has what the kernel says: a connection that the server closed, and a port without a server.
func TestSocketsOfAModelServer(t *testing.T) {
	t.Parallel()
	var observed refusals
	o := patient()
	s := NewScraper(ScraperParams{Options: o, Budget: NewBudget(o.Budget), Log: zap.NewNop(), ObserveScrape: observed.observe, Outliers: deaf{}, Clock: clock.RealClock{}})
	server := httptest.NewServer(text("vllm:num_requests_running 1\n"))
	e := endpointAt(server.Listener.Addr().String())
	w := newWorker(t, s, e)
	w.scrapeOnce(time.Now())
	assert.InDelta(t, 1, e.Load().Running, 0)
	first := w.conn
	require.NotNil(t, first, "the connection is kept")
	w.scrapeOnce(time.Now())
	assert.Same(t, first, w.conn)
	server.CloseClientConnections()
	w.scrapeOnce(time.Now())
	assert.NotSame(t, first, w.conn, "the server closed the first")
	assert.Zero(t, e.StatsAt(time.Now()).ScrapeFailures)

	server.Close()
	w.scrapeOnce(time.Now())
	assert.EqualValues(t, 1, observed)
	assert.EqualValues(t, 1, e.StatsAt(time.Now()).ScrapeFailures)
}
