package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"fairlead.dev/pkg/memnet"
	"fairlead.dev/pkg/servingcert"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		giveArgs []string
		want     Options
		wantErr  string
	}{
		{name: "defaults", want: Options{MetricsAddress: ":9090", HealthAddress: ":8081"}},
		{
			name:     "flags set all",
			giveArgs: []string{"--metrics-bind-address=127.0.0.1:1", "--health-probe-bind-address=0", "--enable-pprof"},
			want:     Options{MetricsAddress: "127.0.0.1:1", HealthAddress: "0", EnablePprof: true},
		},
		{name: "metrics address without port", giveArgs: []string{"--metrics-bind-address=localhost"}, wantErr: `--metrics-bind-address "localhost" is not host:port`},
		{name: "health port too high", giveArgs: []string{"--health-probe-bind-address=:70000"}, wantErr: `--health-probe-bind-address ":70000" is not host:port`},
		{name: "pprof with the metrics address disabled", giveArgs: []string{"--metrics-bind-address=", "--enable-pprof"}, wantErr: "--enable-pprof requires --metrics-bind-address"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := DefaultOptions()
			fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
			o.AddFlags(fs)
			require.NoError(t, fs.Parse(tt.giveArgs))

			err := o.Validate()
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, o)
		})
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := start(t, Params{
		Live:  []Check{{Name: "loop", Probe: passing}},
		Ready: []Check{{Name: "caches", Probe: passing}, {Name: "pool", Probe: failing("pool ns/a\nis  not synced")}},
	})
	tests := []struct {
		name       string
		path       string
		wantStatus int
		wantBody   string
	}{
		{name: "live", path: "/healthz", wantStatus: 200, wantBody: "ok\n"},
		{name: "not ready lists failed checks, one line each", path: "/readyz", wantStatus: 503, wantBody: "[-] pool: pool ns/a is not synced\n"},
		{name: "verbose lists all", path: "/readyz?verbose", wantStatus: 503, wantBody: "[+] caches\n[-] pool: pool ns/a is not synced\n"},
		{name: "verbose and ok", path: "/healthz?verbose", wantStatus: 200, wantBody: "[+] loop\nok\n"},
		{name: "one passing check", path: "/readyz/caches", wantStatus: 200, wantBody: "ok\n"},
		{name: "one failing check", path: "/readyz/pool", wantStatus: 503, wantBody: "[-] pool: pool ns/a is not synced\n"},
		{name: "unknown check", path: "/readyz/other", wantStatus: 404, wantBody: "404 page not found\n"},
		{name: "no metrics on the health address", path: "/metrics", wantStatus: 404, wantBody: "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			status, body := get(t, s.health, tt.path)
			assert.Equal(t, tt.wantStatus, status)
			assert.Equal(t, tt.wantBody, body)
		})
	}
}

func TestProbeTimeIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, Params{Ready: []Check{{Name: "bounded", Probe: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}}})
		began := time.Now()

		status, body := get(t, s.health, "/readyz")

		assert.Equal(t, 503, status, body)
		assert.Equal(t, probeTimeout, time.Since(began))
	})
}

func TestMetricsPort(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }))
	extra := map[string]http.Handler{"GET /debug/pool": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "pool dump")
	})}
	tests := []struct {
		name       string
		give       Params
		path       string
		wantStatus int
		want       string
	}{
		{name: "metrics", give: Params{Gatherer: registry}, path: "/metrics", wantStatus: 200, want: "answer 42"},
		{name: "no gatherer", path: "/metrics", wantStatus: 404},
		{name: "pprof off", path: "/debug/pprof/", wantStatus: 404},
		{name: "pprof on", give: Params{Options: Options{EnablePprof: true}}, path: "/debug/pprof/", wantStatus: 200, want: "goroutine"},
		{name: "pprof profile by name", give: Params{Options: Options{EnablePprof: true}}, path: "/debug/pprof/goroutine?debug=1", wantStatus: 200, want: "TestMetricsPort"},
		{name: "a handler of the service", give: Params{Handlers: extra}, path: "/debug/pool", wantStatus: 200, want: "pool dump"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, tt.give)
			status, body := get(t, s.metrics, tt.path)
			assert.Equal(t, tt.wantStatus, status)
			assert.Contains(t, body, tt.want)
		})
	}
}

func TestProtectStandsBeforeAllButHealth(t *testing.T) {
	t.Parallel()
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	var seen atomic.Int32
	s := start(t, Params{
		Options: Options{EnablePprof: true}, Gatherer: prometheus.NewRegistry(), Handlers: map[string]http.Handler{"/debug/pool": page},
		Protect: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen.Add(1)
				if r.URL.Query().Has("let-me-in") {
					next.ServeHTTP(w, r)
					return
				}
				http.Error(w, "no", http.StatusForbidden)
			})
		},
	})
	for n, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pool", "/other"} {
		status, _ := get(t, s.metrics, path)
		assert.Equal(t, 403, status, path)
		assert.EqualValues(t, n+1, seen.Load())
	}
	status, body := get(t, s.metrics, "/debug/pool?let-me-in")
	assert.Equal(t, 200, status)
	assert.Equal(t, "page", body)
	status, _ = get(t, s.health, "/healthz")
	assert.Equal(t, 200, status)
}

func TestMetricsOverTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		certificate, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "test", servingcert.Options{}, time.Now())
		require.NoError(t, err)
		s := start(t, Params{Gatherer: prometheus.NewRegistry(), TLS: certificate.TLS(servingcert.Options{})})

		client := http.Client{Transport: &http.Transport{
			DialContext: dial(s.metrics), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}}
		response, err := client.Get("https://memory/metrics")
		require.NoError(t, err)
		defer response.Body.Close()
		assert.Equal(t, 200, response.StatusCode)
		status, _ := get(t, s.metrics, "/metrics")
		assert.Equal(t, 400, status, "plaintext")
		status, _ = get(t, s.health, "/healthz")
		assert.Equal(t, 200, status, "health is always plaintext")
	})
}

func TestOneFailingCollectorDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	desc := prometheus.NewDesc("broken", "", nil, nil)
	registry.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }),
		invalidCollector{desc},
	)
	s := start(t, Params{Gatherer: registry})

	status, body := get(t, s.metrics, "/metrics")

	assert.Equal(t, 200, status)
	assert.Contains(t, body, "answer 42")
}

func TestServersSwitchedOff(t *testing.T) {
	t.Parallel()
	s := New(Params{Options: Options{MetricsAddress: "0", HealthAddress: ""}, Log: zap.NewNop()})
	require.NoError(t, s.Listen())
	assert.Empty(t, s.MetricsAddress())
	assert.Empty(t, s.HealthAddress())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Run(ctx))
}

func TestRunLetsRequestsFinish(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name     string
		give     time.Duration // from the shutdown to the end of the request
		want     time.Duration // duration of the shutdown
		answered bool
	}{
		{name: "a request that ends in time", give: shutdownTimeout - 2*time.Second, want: shutdownTimeout - 2*time.Second, answered: true},
		{name: "a request that ends too late", give: time.Hour, want: shutdownTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				started := make(chan struct{})
				slow := func(context.Context) error {
					close(started)
					time.Sleep(tt.give)
					return nil
				}
				s := New(Params{Options: Options{MetricsAddress: "0"}, Log: zap.NewNop(), Ready: []Check{{Name: "slow", Probe: slow}}})
				memory := memnet.Listen()
				s.health.listener = memory
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ended := make(chan time.Time, 1)
				go func() {
					assert.NoError(t, s.Run(ctx))
					ended <- time.Now()
				}()
				answered := make(chan error, 1)
				go func() { answered <- ask(memory, "/readyz") }()

				<-started
				began := time.Now()
				cancel()
				assert.Equal(t, tt.answered, <-answered == nil)
				// Shutdown looks at its connections at intervals of up to half a second.
				assert.InDelta(t, tt.want, (<-ended).Sub(began), float64(time.Second))
				time.Sleep(tt.give) // the probe ends
			})
		})
	}
}

// ask sends one request and returns after its response.
func ask(memory *memnet.Listener, path string) error {
	client := http.Client{Transport: &http.Transport{DialContext: memory.Dial, DisableKeepAlives: true}}
	response, err := client.Get("http://memory" + path)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return errors.Join(err, response.Body.Close())
}

func TestRunEndsWhenOneServerFails(t *testing.T) {
	t.Parallel()
	s := New(Params{Log: zap.NewNop()})
	s.metrics.listener, s.health.listener = memnet.Listen(), memnet.Listen()
	require.NoError(t, s.health.listener.Close())

	err := s.Run(t.Context())

	require.ErrorContains(t, err, "serve --health-probe-bind-address")
}

// start serves p in memory until the test ends.
func start(t *testing.T, p Params) *Server {
	t.Helper()
	p.Log = zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	s := New(p)
	s.metrics.listener, s.health.listener = memnet.Listen(), memnet.Listen()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return s
}

// dial returns the dial function of clients of an endpoint in memory.
func dial(e *endpoint) func(ctx context.Context, network, address string) (net.Conn, error) {
	return e.listener.(*memnet.Listener).Dial
}

func get(t *testing.T, e *endpoint, path string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: dial(e), DisableKeepAlives: true}}
	response, err := client.Get("http://memory" + path)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func passing(context.Context) error { return nil }

func failing(message string) func(context.Context) error {
	return func(context.Context) error { return errors.New(message) }
}

type invalidCollector struct{ desc *prometheus.Desc }

func (c invalidCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c invalidCollector) Collect(ch chan<- prometheus.Metric) {
	ch <- prometheus.NewInvalidMetric(c.desc, errors.New("broken"))
}
