package modelserver

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// newScraper returns one that does not run, and what it logs.
func newScraper(t *testing.T) (*Scraper, *zaptest.ObservedLogs) {
	t.Helper()
	core, logs := zaptest.New(zap.InfoLevel)
	return inMemory(ScraperParams{Options: patient(), Log: zap.New(core), ObserveScrape: unobserved, Outliers: deaf{}}), logs
}

// relabel describes an endpoint anew.
func relabel(e *endpoint.Endpoint, engine string) {
	d := *e.Description()
	d.Labels = map[string]string{LabelEngine: engine}
	e.UpdateDescription(d)
}

func TestEngineFollowsTheLabel(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prometheus/metrics" {
			text("trtllm_num_requests_running 3\n")(w, r)
			return
		}
		text("vllm:num_requests_running 1\nsglang:num_running_reqs 2\n")(w, r)
	})
	s, logs := newScraper(t)
	e := server.endpoint()
	w := newWorker(t, s, e)
	for _, tt := range []struct {
		engine string
		want   float64
	}{{"", 1}, {EngineSGLang, 2}, {EngineTRTLLMServe, 3}, {EngineVLLM, 1}} {
		if tt.engine != "" {
			relabel(e, tt.engine)
		}
		w.scrapeOnce(time.Now())
		assert.InDelta(t, tt.want, e.Load().Running, 0, tt.engine)
	}
	assert.Zero(t, logs.Len())
}

func TestUnknownEngineIsSaidOnceAndReadAsTheDefault(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text("vllm:num_requests_running 1\n"))
	s, logs := newScraper(t)
	e := server.endpoint()
	relabel(e, "tgi")
	w := newWorker(t, s, e)
	w.scrapeOnce(time.Now())
	relabel(e, "tgi")
	w.scrapeOnce(time.Now())
	assert.InDelta(t, 1, e.Load().Running, 0)
	require.Equal(t, 1, logs.Len(), "once for the same labels")
	assert.Equal(t, "tgi", logs.All()[0].ContextMap()["engine"])
	relabel(e, "other")
	w.scrapeOnce(time.Now())
	require.Equal(t, 2, logs.Len())
	assert.Equal(t, "other", logs.All()[1].ContextMap()["engine"])
}

func TestSettingsTakeEffectWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newModelServer(t, text("vllm:num_requests_running 1\n")), newModelServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RequestURI() == "/m?x=y" {
				text("mine 4\nheat 40\n")(w, r)
			}
		})
		e := first.endpoint()
		s, _ := start(t, quick(), e)
		time.Sleep(time.Second)
		assert.InDelta(t, 1, e.Load().Running, 0)

		settings := DefaultSettings()
		port := int(second.endpoint().Identity().Address.Port())
		settings.Source.Port, settings.Source.Path = &port, "/m?x=y"
		settings.Extractor.Engines = []Engine{{Name: "mine", Running: []string{"mine"}, Custom: []CustomMetric{{"heat", "heat"}}}}
		settings.Extractor.DefaultEngine = "mine"
		synctest.Wait()
		configure(t, s, settings)
		settled := first.scrapes.Load()
		time.Sleep(time.Second)
		assert.InDelta(t, 4, e.Load().Running, 0)
		assert.Equal(t, map[string]float64{"heat": 40}, e.Load().Page.Attributes)
		assert.Greater(t, second.scrapes.Load(), int64(5))
		assert.Equal(t, settled, first.scrapes.Load())
	})
}

func TestPagesOverTLS(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give func(ca, other string) Source
		want float64
	}{
		{name: "not verified", give: func(string, string) Source { return Source{} }, want: 1},
		{name: "verified", give: func(ca, _ string) Source { return Source{CACertPath: ca} }, want: 1},
		{name: "verified, whatever the other parameter", give: func(ca, _ string) Source { return Source{CACertPath: ca, InsecureSkipVerify: new(true)} }, want: 1},
		{name: "by another authority", give: func(_, other string) Source { return Source{CACertPath: other} }, want: 0},
		{name: "by no known authority", give: func(string, string) Source { return Source{InsecureSkipVerify: new(false)} }, want: 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				certificate := newCertificate(t)
				server := startModelServer(t, text("vllm:num_requests_running 1\n"), certificate)
				server.ErrorLog = zap.NewStdLog(zap.NewNop()) // handshakes that the scraper ends
				s, _ := newScraper(t)
				settings := DefaultSettings()
				settings.Source = tt.give(authorityFile(t, certificate), authorityFile(t, newCertificate(t)))
				settings.Source.Scheme = schemeHTTPS
				configure(t, s, settings)
				e := server.endpoint()
				w := newWorker(t, s, e)
				w.scrapeOnce(time.Now())
				w.scrapeOnce(time.Now())
				assert.InDelta(t, tt.want, e.Load().Running, 0)
			})
		})
	}
}

// TestPagesOfServersWithTLS has an endpoint that says how connections to it are secured, which the configuration does not.
func TestPagesOfServersWithTLS(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]float64{"127.0.0.1": 1, "vllm.example.com": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				certificate := newCertificate(t)
				server := startModelServer(t, text("vllm:num_requests_running 1\n"), certificate)
				server.ErrorLog = zap.NewStdLog(zap.NewNop()) // handshakes that the scraper ends
				s, _ := newScraper(t)
				e := server.endpoint()
				d := *e.Description()
				source := Source{CACertPath: authorityFile(t, certificate)}
				var err error
				d.TLS, err = source.TLSConfig()
				require.NoError(t, err)
				d.TLS.ServerName = name
				e.UpdateDescription(d)
				newWorker(t, s, e).scrapeOnce(time.Now())
				assert.InDelta(t, want, e.Load().Running, 0)
			})
		})
	}
}

// TestRotatedFiles has a server with a new certificate that accepts only the new certificate of its client. The settings stay the same.
func TestRotatedFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var accepted atomic.Pointer[x509.Certificate]
		page := func(w http.ResponseWriter, r *http.Request) {
			if r.TLS.PeerCertificates[0].Equal(accepted.Load()) {
				text("vllm:num_requests_running 1\n")(w, r)
			} else {
				w.WriteHeader(http.StatusForbidden)
			}
		}
		s, _ := newScraper(t)
		settings := DefaultSettings()
		settings.Source = Source{Scheme: schemeHTTPS}
		settings.Source.CACertPath, settings.Source.ClientCertPath, settings.Source.ClientKeyPath = certificateFiles(t)
		replace := func() tls.Certificate {
			ca, certificate, key := certificateFiles(t)
			require.NoError(t, os.Rename(ca, settings.Source.CACertPath))
			require.NoError(t, os.Rename(certificate, settings.Source.ClientCertPath))
			require.NoError(t, os.Rename(key, settings.Source.ClientKeyPath))
			pair, err := tls.LoadX509KeyPair(settings.Source.ClientCertPath, settings.Source.ClientKeyPath)
			require.NoError(t, err)
			return pair
		}
		first := replace()
		accepted.Store(first.Leaf)
		configure(t, s, settings)
		server := startModelServer(t, page, first)
		server.ErrorLog = zap.NewStdLog(zap.NewNop()) // handshakes that the scraper ends
		w := newWorker(t, s, server.endpoint())
		w.scrapeOnce(time.Now())
		assert.Zero(t, w.endpoint.StatsAt(time.Now()).ScrapeFailures)

		second := replace()
		accepted.Store(second.Leaf)
		configure(t, s, settings)
		w.scrapeOnce(time.Now())
		assert.EqualValues(t, 1, w.endpoint.StatsAt(time.Now()).ScrapeFailures, "the server has the certificate of the old authority")
		w = newWorker(t, s, startModelServer(t, page, second).endpoint())
		w.scrapeOnce(time.Now())
		assert.Zero(t, w.endpoint.StatsAt(time.Now()).ScrapeFailures)
	})
}

// authorityFile writes a certificate that is its own authority.
func authorityFile(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}), 0o600))
	return path
}

func endpointAt(address string) *endpoint.Endpoint {
	e := anEndpoint()
	d := *e.Description()
	d.Address = netip.MustParseAddrPort(address)
	e.UpdateDescription(d)
	return e
}

func TestConnectionThatTheServerClosedIsReplaced(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text("vllm:num_requests_running 1\n"))
	s, _ := newScraper(t)
	e := server.endpoint()
	w := newWorker(t, s, e)
	w.scrapeOnce(time.Now())
	w.scrapeOnce(time.Now())
	_, all := server.connections()
	require.Equal(t, 1, all)
	require.NoError(t, server.closeConnections())
	w.scrapeOnce(time.Now())
	_, all = server.connections()
	assert.Equal(t, 2, all)
	assert.Zero(t, e.StatsAt(time.Now()).ScrapeFailures)
}

func TestPagesInChunks(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range strings.SplitAfter("vllm:num_requests_running{a=\"b\"} 12\n", "_") {
			_, _ = w.Write([]byte(part))
			w.(http.Flusher).Flush()
		}
	})
	s, _ := newScraper(t)
	e := server.endpoint()
	w := newWorker(t, s, e)
	for range 3 {
		w.scrapeOnce(time.Now())
	}
	assert.InDelta(t, 12, e.Load().Running, 0)
	assert.NotNil(t, w.conn, "the connection is kept")
	assert.Zero(t, e.StatsAt(time.Now()).ScrapeFailures)
}

// A server that accepts and says nothing is not one that is gone: its connection may time out, but is not tried twice.
func TestSilenceIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newModelServer(t, hang)
		s, _ := newScraper(t)
		e := server.endpoint()
		newWorker(t, s, e).scrapeOnce(time.Now())
		assert.EqualValues(t, 1, server.scrapes.Load())
		assert.NotZero(t, e.Load().Failing)
	})
}

func TestNothingIsRecordedOfAnEndpointThatHasGone(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text("vllm:num_requests_running 1\n"))
	s, _ := newScraper(t)
	e := server.endpoint()
	w := newWorker(t, s, e)
	w.cancel()
	w.scrapeOnce(time.Now())
	assert.Zero(t, e.StatsAt(time.Now()).ScrapeFailures)
	assert.Zero(t, e.Load().Running)
}

// Pages set the pace: news keep it, confirmation slows it, a failure begins anew.
func TestPagesSetThePace(t *testing.T) {
	t.Parallel()
	server := newModelServer(t, text(samplePage(1, 0, 0)))
	s, _ := newScraper(t)
	e := server.endpoint()
	w := newWorker(t, s, e)
	steps := []struct {
		page http.HandlerFunc
		want pace
	}{
		{page: text(samplePage(1, 0, 0)), want: pace{}}, // the first is always news
		{page: text(samplePage(1, 0, 0)), want: pace{streak: 1}},
		{page: text(samplePage(2, 0, 0)), want: pace{streak: 2}},
		{page: text(samplePage(9, 0, 0)), want: pace{}},
		{page: status(http.StatusTeapot), want: pace{failing: true}},
		{page: status(http.StatusTeapot), want: pace{failing: true, streak: 1}},
		{page: text(samplePage(9, 0, 0)), want: pace{}},
		{page: text(samplePage(9, 0, 0)), want: pace{streak: 1}},
	}
	for i, step := range steps {
		server.page.Store(&step.page)
		w.scrapeOnce(time.Now())
		assert.Equal(t, step.want, w.pace, "step %d", i)
	}
	for range 5 {
		e.Acquire()
	}
	foreseen := text(samplePage(14, 0, 0))
	server.page.Store(&foreseen)
	w.scrapeOnce(time.Now())
	assert.Equal(t, pace{streak: 2}, w.pace, "our own requests are no news")
}

func TestOneSilentEndpointAmongMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent, good := newModelServer(t, hang), newModelServer(t, text("vllm:num_requests_running 1\n"))
		endpoints := make([]*endpoint.Endpoint, 0, 9)
		for range 8 {
			endpoints = append(endpoints, silent.endpoint())
		}
		fresh := good.endpoint()
		o := quick()
		o.Timeout = time.Minute
		start(t, o, append(endpoints, fresh)...)
		time.Sleep(time.Second)
		assert.Greater(t, good.scrapes.Load(), int64(20))
		assert.EqualValues(t, 8, silent.scrapes.Load())
	})
}

// The port of a page is the first that is known.
func TestPortOfThePage(t *testing.T) {
	t.Parallel()
	port := 9100
	tests := []struct {
		name   string
		source Source
		engine string
		own    uint16
		want   uint16
	}{
		{name: "that of requests", engine: EngineVLLM, want: 8000},
		{name: "of the engine", engine: EngineTriton, want: 8002},
		{name: "of another engine", engine: EngineTritonTRTLLM, want: 8002},
		{name: "of all endpoints", source: Source{Port: &port}, engine: EngineTriton, want: 9100},
		{name: "of the endpoint", source: Source{Port: &port}, engine: EngineTriton, own: 9200, want: 9200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			settings := DefaultSettings()
			settings.Source.Port = tt.source.Port
			settings.Extractor.Engines = []Engine{{Name: EngineTriton, Waiting: Metrics{"nv_inference_pending_request_count"}, KVUsage: Metrics{"own"}}}
			p, err := CompilePlan(settings, DefaultOptions())
			require.NoError(t, err)
			d := &endpoint.Description{MetricsPort: tt.own, Labels: map[string]string{LabelEngine: tt.engine}}
			d.Address = netip.MustParseAddrPort("10.0.0.1:8000")
			engine, known := p.engineOf(d)
			require.True(t, known)
			assert.Equal(t, netip.AddrPortFrom(d.Address.Addr(), tt.want), p.pageAddress(d, engine))
		})
	}
}

// An annotation takes effect at the next scrape, over another connection.
func TestPortOfThePageChanges(t *testing.T) {
	t.Parallel()
	requests := newModelServer(t, text("vllm:num_requests_running 1\n"))
	metrics := newModelServer(t, text("vllm:num_requests_running 2\n"))
	s, _ := newScraper(t)
	e := requests.endpoint()
	w := newWorker(t, s, e)
	w.scrapeOnce(time.Now())
	assert.InDelta(t, 1, e.Load().Running, 0)
	d := *e.Description()
	d.MetricsPort = netip.MustParseAddrPort(metrics.address).Port()
	e.UpdateDescription(d)
	w.scrapeOnce(time.Now())
	assert.InDelta(t, 2, e.Load().Running, 0)
}
