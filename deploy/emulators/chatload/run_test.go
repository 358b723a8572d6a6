package chatload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer writes a stream. The default is a valid stream of two tokens.
func answer(w http.ResponseWriter, data ...string) {
	if len(data) == 0 {
		data = []string{role, delta, last, total, done}
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	_, _ = io.WriteString(w, events(data...))
}

// waitForClient waits until the client disconnects. It reads the request first, because net/http detects a disconnection only then.
func waitForClient(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// serve starts a server in memory, for a bubble, and returns options for requests to it.
func serve(t *testing.T, handler http.Handler) Options {
	t.Helper()
	l := memnet.Listen()
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ErrorLog: zap.NewStdLog(zap.NewNop())}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		assert.NoError(t, server.Close())
		<-ended
	})
	o := options("http://server")
	o.Dial = l.Dial
	return o
}

func options(url string) Options {
	return Options{BaseURL: url, Model: "m", Concurrency: 1, Requests: 1, MaxTokens: 2, IgnoreEOS: true}
}

func run(t *testing.T, o Options) (*Report, []Result) {
	t.Helper()
	var results []Result
	o.OnResult = func(r Result) { results = append(results, r) }
	report, err := Run(t.Context(), o)
	require.NoError(t, err)
	return report, results
}

func TestSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const ttft, rest = 30 * time.Millisecond, 20 * time.Millisecond
		o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Served-By", "pod-a")
			w.Header().Set("X-Served-Endpoint", "10.0.0.1:8000")
			w.Header().Set("X-Fairlead-Picked-Endpoint", "10.0.0.1:8000")
			body, err := io.ReadAll(r.Body)
			assert.NoError(t, err)
			assert.Equal(t, []string{"POST /v1/chat/completions", "application/json", "chatload-3-0", "yes", "example.com"},
				[]string{r.Method + " " + r.URL.Path, r.Header.Get("Content-Type"), r.Header.Get("X-Request-Id"), r.Header.Get("X-Extra"), r.Host})
			assert.Regexp(t, `^{"model":"m","messages":\[{"role":"user","content":".{128,150}"}\],"max_tokens":2,"ignore_eos":true,"stream":true,`+
				`"stream_options":{"include_usage":true},"return_token_ids":true}$`, string(body))
			time.Sleep(ttft)
			answer(w, role, delta)
			assert.NoError(t, http.NewResponseController(w).Flush())
			time.Sleep(rest)
			answer(w, last, total, done)
		}))
		o.BaseURL += "/"
		o.RequirePicked = true
		o.Prompts.Seed = 3
		o.Header = http.Header{"x-extra": {"yes"}, "Host": {"example.com"}}
		start := time.Now()
		report, results := run(t, o)
		assert.Equal(t, []Result{{Start: start, TTFT: ttft, Duration: ttft + rest, Status: 200, ServedBy: "pod-a", ServedEndpoint: "10.0.0.1:8000",
			PickedEndpoint: "10.0.0.1:8000", Tokens: 2, PromptTokens: 9, CachedTokens: 4}}, results)
		assert.Equal(t, 0, report.Failed())
	})
}

// TestNothingIsSentTwice fails requests on reused connections, which net/http would retry if it could.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		received := 0
		o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if received++; received%2 == 0 {
				panic(http.ErrAbortHandler)
			}
			answer(w)
		}))
		o.KeepAlive, o.Requests = true, 20
		report, _ := run(t, o)
		assert.Equal(t, 20, received)
		assert.Equal(t, map[Class]int{ClassReset: 10}, report.Failures)
	})
}

func TestKeepAlive(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		change      func(*Options)
		connections int
	}{
		{"off", func(*Options) {}, 12},
		{"on", func(o *Options) { o.KeepAlive = true }, 1},
		{"on, with HTTP/2", func(o *Options) { o.KeepAlive, o.HTTP2 = true, true }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				connections, protocol := 0, 0
				o := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					protocol = r.ProtoMajor
					answer(w)
				}))
				dial := o.Dial
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					connections++
					return dial(ctx, network, address)
				}
				o.Requests = 12
				tt.change(&o)
				report, _ := run(t, o)
				assert.Equal(t, 0, report.Failed())
				assert.Equal(t, tt.connections, connections)
				assert.Equal(t, o.HTTP2, protocol == 2)
			})
		})
	}
}

// fakeServer answers each request after a delay, without a network.
type fakeServer struct {
	delay time.Duration
	start time.Time

	mu             sync.Mutex
	underWay, peak int
	arrivals       []time.Duration
}

func (f *fakeServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.GetBody != nil {
		return nil, errors.New("net/http could send the request twice")
	}
	number := f.arrive()
	defer f.leave()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-time.After(f.delay):
	}
	recorder := httptest.NewRecorder()
	recorder.Header().Set("X-Served-By", fmt.Sprintf("pod-%d", number%2))
	answer(recorder)
	return recorder.Result(), nil
}

func (f *fakeServer) arrive() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.underWay++
	f.peak = max(f.peak, f.underWay)
	f.arrivals = append(f.arrivals, time.Since(f.start))
	return len(f.arrivals)
}

func (f *fakeServer) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.underWay--
}

// onFakeServer returns options for a bubble, with a server that takes a second for each request.
func onFakeServer() (*fakeServer, Options) {
	server := &fakeServer{delay: time.Second, start: time.Now()}
	o := options("http://server")
	o.Client = &http.Client{Transport: server}
	o.Requests = 0
	return server, o
}

func TestClosedLoopKeepsItsConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, o := onFakeServer()
		o.Concurrency, o.Requests = 7, 30
		report, results := run(t, o)
		assert.Equal(t, 7, server.peak)
		assert.Len(t, server.arrivals, 30)
		assert.Equal(t, 30, report.Total.Requests)
		assert.Equal(t, 5*time.Second, report.Elapsed)
		seen := map[int]bool{}
		for _, r := range results {
			seen[r.Index] = true
			assert.Equal(t, time.Second, r.Duration)
		}
		assert.Len(t, seen, 30, "each request has its own number")
	})
}

func TestDurationEndsTheLoadButNoRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := onFakeServer()
		o.Concurrency, o.Duration = 3, 4500*time.Millisecond
		report, _ := run(t, o)
		assert.Equal(t, 15, report.Total.Requests)
		assert.Equal(t, 5*time.Second, report.Elapsed)
		assert.Equal(t, 0, report.Failed())
	})
}

func TestStopEndsTheLoadButNoRequest(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			server, o := onFakeServer()
			stop := make(chan struct{})
			time.AfterFunc(2500*time.Millisecond, func() { close(stop) })
			o.Stop = stop
			if o.Rate = rate; rate > 0 {
				o.Concurrency = 0
			}
			report, _ := run(t, o)
			assert.Len(t, server.arrivals, report.Total.Requests)
			assert.Equal(t, 0, report.Failed()+report.Canceled)
			assert.Less(t, server.arrivals[len(server.arrivals)-1], 2500*time.Millisecond)
			assert.LessOrEqual(t, report.Elapsed, 3500*time.Millisecond)
		})
	}
}

func TestStopIsNoticedBetweenArrivals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, o := onFakeServer()
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		o.Stop, o.Concurrency, o.Rate = stop, 0, 0.0001
		report, _ := run(t, o)
		assert.Empty(t, server.arrivals)
		assert.Equal(t, time.Second, report.Elapsed)
	})
}

func TestCanceledRequestsAreNoFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := onFakeServer()
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		o.Concurrency = 3
		report, err := Run(ctx, o)
		require.NoError(t, err)
		assert.Equal(t, []int{6, 3, 0}, []int{report.Total.Requests, report.Canceled, report.Failed()})
		assert.Equal(t, 2500*time.Millisecond, report.Elapsed)
	})
}

func TestOpenLoopArrivesAtItsRate(t *testing.T) {
	t.Parallel()
	var first []time.Duration
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			server, o := onFakeServer()
			o.Concurrency, o.Rate, o.Duration = 0, 50, 20*time.Second
			report, _ := run(t, o)
			assert.InDelta(t, 1000, report.Total.Requests, 100)
			assert.Greater(t, server.peak, 55, "arrivals do not wait for answers, and have bursts")
			if first == nil {
				first = server.arrivals
			}
			assert.Equal(t, first, server.arrivals, "arrivals are the same in every run")
		})
	}
}

func TestWrongOptions(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Options)
		want   string
	}{
		{"no server", func(o *Options) { o.BaseURL = "server" }, `base URL "server" has no host`},
		{"no model", func(o *Options) { o.Model = "" }, "model is empty"},
		{"neither loop", func(o *Options) { o.Concurrency = 0 }, "one of concurrency and rate"},
		{"both loops", func(o *Options) { o.Rate = 1 }, "one of concurrency and rate"},
		{"negative concurrency", func(o *Options) { o.Concurrency, o.Rate = -1, 1 }, "one of concurrency and rate"},
		{"no tokens", func(o *Options) { o.MaxTokens = 0 }, "max tokens"},
		{"negative limit", func(o *Options) { o.Requests = -1 }, "must not be negative"},
		{"negative prompt", func(o *Options) { o.Prompts.OwnTokens = -1 }, "prompts: groups and tokens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options("http://server")
			tt.change(&o)
			report, err := Run(t.Context(), o)
			require.ErrorContains(t, err, tt.want)
			assert.Nil(t, report)
		})
	}
}
