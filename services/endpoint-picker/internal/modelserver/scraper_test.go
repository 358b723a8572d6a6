package modelserver

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

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
	p, err := CompilePlan(settings, s.params.Options)
	require.NoError(t, err)
	s.SetPlan(p)
}

// inMemory returns a Scraper of servers in memory.
func inMemory(p ScraperParams) *Scraper {
	p.Clock, p.Budget = clock.RealClock{}, NewBudget(p.Options.Budget)
	s := NewScraper(p)
	s.dial = dialMemory
	return s
}

// unobserved forgets the measurements of a scrape.
func unobserved(time.Duration, error) {}

// start runs a scraper until the test ends.
func start(t *testing.T, o Options, endpoints ...*endpoint.Endpoint) (*Scraper, *zaptest.ObservedLogs) {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	s := inMemory(ScraperParams{Options: o, Log: zap.New(core), ObserveScrape: unobserved, Outliers: deaf{}})
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

// patient is for tests in real time, whose servers answer.
func patient() Options {
	o := quick()
	o.Timeout = kubetest.Patience
	return o
}

func TestScraperFollowsAPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newModelServer(t, text("vllm:num_requests_running 1\n"))
		e := server.endpoint()
		start(t, quick(), e)
		time.Sleep(time.Second)
		assert.InDelta(t, 1, e.Load().Requests, 0)

		page := text(samplePage(4, 3, 0.75))
		server.page.Store(&page)
		time.Sleep(time.Second)
		assert.InDelta(t, 7, e.Load().Requests, 0)
		assert.InDelta(t, 0.75, e.Load().KVUsage, 0)
	})
}

func TestScraperKeepsItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newModelServer(t, text(samplePage(1, 1, 0)))
		start(t, quick(), server.endpoint())
		time.Sleep(time.Second)
		assert.Greater(t, server.scrapes.Load(), int64(20))
		_, all := server.connections()
		assert.Equal(t, 1, all)
	})
}

func TestSilentEndpointDelaysNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent, good := newModelServer(t, hang), newModelServer(t, text("vllm:num_requests_running 1\n"))
		lost, fresh := silent.endpoint(), good.endpoint()
		o := quick()
		o.Timeout = time.Minute
		start(t, o, lost, fresh)
		time.Sleep(time.Second)
		assert.Greater(t, good.scrapes.Load(), int64(20))
		assert.EqualValues(t, 1, silent.scrapes.Load())
		assert.Zero(t, lost.Load().Requests)
	})
}

func TestFailingPagesAreCountedAndSaidOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		page http.HandlerFunc
		want string
	}{
		{name: "status", page: status(http.StatusInternalServerError), want: "get metrics page: status 500"},
		{name: "redirect", page: func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) }, want: "get metrics page: status 302"},
		{name: "other page", page: text("up 1\n"), want: "page without the request gauges of vllm: name the engine in the label llm-d.ai/engine-type of the pod, or give the address of its metrics page with the flags --model-server-metrics-port and --model-server-metrics-path"},
		{name: "no answer", page: hang, want: "i/o timeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := newModelServer(t, tt.page)
				e := server.endpoint()
				o := quick()
				o.Timeout = 200 * time.Millisecond
				_, logs := start(t, o, e)
				time.Sleep(2 * time.Second)
				assert.Greater(t, e.StatsAt(time.Now()).ScrapeFailures, int64(5))
				require.Len(t, logs.All(), 1)
				entry := logs.All()[0]
				assert.Equal(t, "Lost metrics of endpoint, preferred other endpoints", entry.Message)
				assert.Equal(t, "ns/pod", entry.ContextMap()["pod"])
				assert.Contains(t, entry.ContextMap()["error"], tt.want)

				good := text(samplePage(1, 0, 0))
				server.page.Store(&good)
				time.Sleep(2 * time.Second)
				require.Len(t, logs.All(), 2)
				assert.Equal(t, "Recovered metrics of endpoint", logs.All()[1].Message)
			})
		})
	}
}

func TestScraperFollowsTheSetOfEndpoints(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newModelServer(t, text(samplePage(1, 0, 0))), newModelServer(t, text(samplePage(2, 0, 0)))
		first, second := a.endpoint(), b.endpoint()
		s, _ := start(t, quick(), first)
		time.Sleep(time.Second)
		assert.InDelta(t, 1, first.Load().Requests, 0)

		s.SetEndpoints([]*endpoint.Endpoint{first, second})
		time.Sleep(time.Second)
		assert.InDelta(t, 2, second.Load().Requests, 0)

		s.SetEndpoints([]*endpoint.Endpoint{second})
		synctest.Wait()
		open, _ := a.connections()
		assert.Zero(t, open, "the connection to the first ends with it")
		before, seen := a.scrapes.Load(), b.scrapes.Load()
		time.Sleep(time.Second)
		assert.Greater(t, b.scrapes.Load(), seen+5)
		assert.Equal(t, before, a.scrapes.Load(), "the first is scraped no more")
		open, _ = a.connections()
		assert.Zero(t, open)
	})
}

func TestSetEndpointsBeforeRunKeepsTheLastSet(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text(samplePage(1, 0, 0)))
	s := inMemory(ScraperParams{Options: quick(), Log: zap.NewNop(), Outliers: deaf{}})
	s.SetEndpoints([]*endpoint.Endpoint{server.endpoint(), server.endpoint()})
	s.SetEndpoints(nil)
	assert.Empty(t, <-s.wanted)
}

func TestEveryScrapeIsObserved(t *testing.T) {
	t.Parallel()
	good, bad := newModelServer(t, text(samplePage(1, 0, 0))), newModelServer(t, status(http.StatusNotFound))
	refused := good.endpoint()
	nobody := endpointAt("127.0.0.1:1") // no server has this port
	var observed []error
	told := newMockOutliers(t)
	told.EXPECT().OnScrapeRefused(nobody).Once()
	told.EXPECT().OnScrape(refused).Once()
	s := inMemory(ScraperParams{Options: patient(), Log: zap.NewNop(), Outliers: told, ObserveScrape: func(_ time.Duration, err error) { observed = append(observed, err) }})
	for _, e := range []*endpoint.Endpoint{refused, bad.endpoint(), nobody} {
		newWorker(t, s, e).scrapeOnce(time.Now())
	}
	require.Len(t, observed, 3)
	require.NoError(t, observed[0])
	require.Error(t, observed[1])
	require.NotErrorIs(t, observed[1], errRefused)
	require.ErrorIs(t, observed[2], errRefused)
	assert.EqualValues(t, 1, nobody.StatsAt(time.Now()).ScrapeFailures)
	assert.Zero(t, refused.StatsAt(time.Now()).ScrapeFailures)
}

func newWorker(t *testing.T, s *Scraper, e *endpoint.Endpoint) *worker {
	t.Helper()
	w := &worker{Scraper: s, Turn: &Turn{endpoint: e}}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	t.Cleanup(w.cancel)
	return w
}
