package modelserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

const (
	patience = 10 * time.Second
	tick     = 2 * time.Millisecond
)

// modelServer is a metrics page that a test can change while it is served.
type modelServer struct {
	*httptest.Server

	scrapes     atomic.Int64
	connections atomic.Int64 // that are open
	page        atomic.Pointer[http.HandlerFunc]
}

func newModelServer(t *testing.T, page http.HandlerFunc) *modelServer {
	t.Helper()
	s := &modelServer{}
	s.page.Store(&page)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.scrapes.Add(1)
		(*s.page.Load())(w, r)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			s.connections.Add(1)
		case http.StateClosed:
			s.connections.Add(-1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (s *modelServer) endpoint() *endpoint.Endpoint {
	address := netip.MustParseAddrPort(strings.TrimPrefix(s.URL, "http://"))
	return endpoint.New(endpoint.Description{Identity: endpoint.Identity{Namespace: "ns", Pod: "pod", UID: "1", Address: address}}, time.Now(), nil)
}

func text(page string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang answers nothing before the scraper gives up.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// configure makes settings effective.
func configure(t *testing.T, s *Scraper, settings Settings) {
	t.Helper()
	p, err := Prepare(settings, s.options)
	require.NoError(t, err)
	s.Use(p)
}

// start runs a scraper until the test ends.
func start(t *testing.T, o Options, endpoints ...*endpoint.Endpoint) (*Scraper, *zaptest.ObservedLogs) {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	observed := newMockObserver(t)
	observed.EXPECT().ObserveScrape(mock.Anything, mock.Anything).Maybe()
	s := NewScraper(ScraperParams{Options: o, Log: zap.New(core), Observer: observed, Outliers: deaf{}, Clock: clock.RealClock{}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	s.SetEndpoints(endpoints)
	return s, logs
}

func quick() Options {
	return Options{Interval: Interval{Fastest: 5 * time.Millisecond, Slowest: 10 * time.Millisecond}, Budget: 1000, Timeout: time.Second, StaleAfter: 50 * time.Millisecond}
}

func TestScraperFollowsAPage(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text("vllm:num_requests_running 1\n"))
	e := server.endpoint()
	start(t, quick(), e)
	require.Eventually(t, func() bool { return e.Load().Requests == 1 }, patience, tick)

	page := text(samplePage(4, 3, 0.75))
	server.page.Store(&page)
	require.Eventually(t, func() bool { return e.Load().Requests == 7 }, patience, tick)
	assert.InDelta(t, 0.75, e.Load().KVUsage, 0)
}

func TestScraperKeepsItsConnection(t *testing.T) {
	t.Parallel()
	var clients sync.Map
	server := newModelServer(t, func(w http.ResponseWriter, r *http.Request) {
		clients.Store(r.RemoteAddr, true)
		text(samplePage(1, 1, 0))(w, r)
	})
	start(t, quick(), server.endpoint())
	require.Eventually(t, func() bool { return server.scrapes.Load() > 20 }, patience, tick)
	connections := 0
	clients.Range(func(any, any) bool { connections++; return true })
	assert.Equal(t, 1, connections)
}

func TestSilentEndpointDelaysNobody(t *testing.T) {
	t.Parallel()
	silent, good := newModelServer(t, hang), newModelServer(t, text("vllm:num_requests_running 1\n"))
	lost, fresh := silent.endpoint(), good.endpoint()
	o := quick()
	o.Timeout = time.Minute
	start(t, o, lost, fresh)
	require.Eventually(t, func() bool { return good.scrapes.Load() > 20 }, patience, tick)
	assert.EqualValues(t, 1, silent.scrapes.Load())
	assert.Zero(t, lost.Load().Requests)
}

func TestFailingPagesAreCountedAndSaidOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		page    http.HandlerFunc
		timeout time.Duration
		want    string
	}{
		{name: "status", page: status(http.StatusInternalServerError), timeout: patience, want: "get metrics page: status 500"},
		{name: "redirect", page: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, timeout: patience, want: "get metrics page: status 302"},
		{name: "other page", page: text("up 1\n"), timeout: patience, want: ErrNoGauges.Error()},
		{name: "no answer", page: hang, timeout: 200 * time.Millisecond, want: "i/o timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newModelServer(t, tt.page)
			e := server.endpoint()
			o := quick()
			o.Timeout = tt.timeout
			_, logs := start(t, o, e)
			require.Eventually(t, func() bool { return logs.Len() > 0 }, patience, tick)
			said := e.Stats(time.Now()).ScrapeFailures
			require.Eventually(t, func() bool { return e.Stats(time.Now()).ScrapeFailures > said+5 }, patience, tick)
			require.Len(t, logs.All(), 1)
			entry := logs.All()[0]
			assert.Equal(t, "Lost metrics of endpoint, preferred other endpoints", entry.Message)
			assert.Equal(t, "ns/pod", entry.ContextMap()["pod"])
			assert.Contains(t, entry.ContextMap()["error"], tt.want)

			good := text(samplePage(1, 0, 0))
			server.page.Store(&good)
			require.Eventually(t, func() bool { return logs.Len() == 2 }, patience, tick)
			assert.Equal(t, "Recovered metrics of endpoint", logs.All()[1].Message)
		})
	}
}

func TestScraperFollowsTheSetOfEndpoints(t *testing.T) {
	t.Parallel()
	a, b := newModelServer(t, text(samplePage(1, 0, 0))), newModelServer(t, text(samplePage(2, 0, 0)))
	first, second := a.endpoint(), b.endpoint()
	s, _ := start(t, quick(), first)
	require.Eventually(t, func() bool { return first.Load().Requests == 1 }, patience, tick)

	s.SetEndpoints([]*endpoint.Endpoint{first, second})
	require.Eventually(t, func() bool { return second.Load().Requests == 2 }, patience, tick)

	s.SetEndpoints([]*endpoint.Endpoint{second})
	require.Eventually(t, func() bool { return a.connections.Load() == 0 }, patience, tick, "the connection to the first ends with it")
	before, seen := a.scrapes.Load(), b.scrapes.Load()
	require.Eventually(t, func() bool { return b.scrapes.Load() > seen+5 }, patience, tick)
	assert.Equal(t, before, a.scrapes.Load(), "the first is scraped no more")
	assert.Zero(t, a.connections.Load())
}

func TestSetEndpointsBeforeRunKeepsTheLastSet(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text(samplePage(1, 0, 0)))
	s := NewScraper(ScraperParams{Options: quick(), Log: zap.NewNop(), Observer: newMockObserver(t), Outliers: deaf{}, Clock: clock.RealClock{}})
	s.SetEndpoints([]*endpoint.Endpoint{server.endpoint(), server.endpoint()})
	s.SetEndpoints(nil)
	assert.Empty(t, <-s.wanted)
}

func TestEveryScrapeIsObserved(t *testing.T) {
	t.Parallel()
	good, bad := newModelServer(t, text(samplePage(1, 0, 0))), newModelServer(t, status(http.StatusNotFound))
	refused := good.endpoint()
	nobody := endpointAt("127.0.0.1:1") // the system never chooses this port for another test
	observed := newMockObserver(t)
	observed.EXPECT().ObserveScrape(mock.Anything, nil).Once()
	observed.EXPECT().ObserveScrape(mock.Anything, mock.MatchedBy(func(err error) bool { return err != nil && !errors.Is(err, ErrRefused) })).Once()
	observed.EXPECT().ObserveScrape(mock.Anything, mock.MatchedBy(func(err error) bool { return errors.Is(err, ErrRefused) })).Once()
	told := newMockOutliers(t)
	told.EXPECT().ScrapeRefused(nobody).Once()
	told.EXPECT().Scraped(refused).Once()
	s := NewScraper(ScraperParams{Options: quick(), Log: zap.NewNop(), Observer: observed, Outliers: told, Clock: clock.RealClock{}})
	for _, e := range []*endpoint.Endpoint{refused, bad.endpoint(), nobody} {
		newWorker(t, s, e).scrape(time.Now())
	}
	assert.EqualValues(t, 1, nobody.Stats(time.Now()).ScrapeFailures)
	assert.Zero(t, refused.Stats(time.Now()).ScrapeFailures)
}

func newWorker(t *testing.T, s *Scraper, e *endpoint.Endpoint) *worker {
	t.Helper()
	w := &worker{Scraper: s, Turn: &Turn{endpoint: e}}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	t.Cleanup(w.cancel)
	return w
}
