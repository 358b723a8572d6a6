package app

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/config"
	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/pkg/steptime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

// testConfig has steps of 10 ms, plus 1 ms for each decoding request and 0.1 ms for each prompt token.
func testConfig() config.Config {
	cfg := config.Default()
	cfg.PodName = "pod-a"
	cfg.Models = []string{"m"}
	cfg.AllowFaultHeader = true
	cfg.Engine = engine.Spec{
		MaxNumSeqs: 4, MaxNumBatchedTokens: 1000, NumBlocks: 1000, BlockSize: 16, MaxModelLen: 16000, MaxLoRAs: 1,
		Law:   steptime.Law{Base: 10 * ms, PerSeq: ms, PerToken: 100 * time.Microsecond},
		Speed: 1,
	}
	return cfg
}

// running is a running server in a synctest bubble.
type running struct {
	client   *http.Client
	listener *memnet.Listener
	start    time.Time
	stop     context.CancelFunc // SIGTERM
	ended    chan struct{}
	err      error // valid after ended is closed
}

// newFlags binds a configuration to flags.
func newFlags(cfg *config.Config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	return fs
}

func serve(t *testing.T, cfg config.Config) *running {
	t.Helper()
	l := memnet.Listen()
	ctx, cancel := context.WithCancel(t.Context())
	transport := &http.Transport{DialContext: l.Dial}
	s := &running{client: &http.Client{Transport: transport}, listener: l, start: time.Now(), stop: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = Serve(ctx, cfg, l, zap.NewNop())
	}()
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, s.wait())
	})
	synctest.Wait()
	return s
}

// kill breaks the server's connections, like SIGKILL.
func (s *running) kill() { s.listener.Break() }

// wait waits until the server has stopped, and returns its error.
func (s *running) wait() error {
	<-s.ended
	return s.err
}

// now returns the time since the server started.
func (s *running) now() time.Duration { return time.Since(s.start) }

func (s *running) open(t *testing.T, method, path, body string, header ...string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return s.client.Do(r)
}

func (s *running) status(t *testing.T, method, path, body string) int {
	t.Helper()
	response, err := s.open(t, method, path, body)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, response.Body)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// result is the stream that a client received. Times count from the start of the server.
type result struct {
	tokens []time.Duration // of each event with text
	texts  []string        // of these events
	done   bool            // received [DONE]
	end    time.Duration
	err    error
}

// stream sends a chat completion of n tokens and reads its answer in the background. Its prompt has 9 tokens.
func (s *running) stream(t *testing.T, n string, header ...string) <-chan result {
	t.Helper()
	results := make(chan result, 1)
	go func() {
		var got result
		defer func() { got.end = s.now(); results <- got }()
		response, err := s.open(t, http.MethodPost, "/v1/chat/completions",
			`{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":`+n+`,"stream":true}`, header...)
		if err != nil {
			got.err = err
			return
		}
		defer func() { _ = response.Body.Close() }()
		lines := bufio.NewScanner(response.Body)
		for lines.Scan() {
			switch line := lines.Text(); {
			case strings.Contains(line, `"content":" `):
				got.tokens = append(got.tokens, s.now())
				got.texts = append(got.texts, line)
			case line == "data: [DONE]":
				got.done = true
			}
		}
		got.err = lines.Err()
	}()
	return results
}

func TestTokensArriveAtTheTimesOfTheFormula(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		got := <-s.stream(t, "3")
		require.NoError(t, got.err)
		assert.Equal(t, []time.Duration{10*ms + 900*time.Microsecond, 21*ms + 900*time.Microsecond, 32*ms + 900*time.Microsecond}, got.tokens)
		assert.True(t, got.done)
	})
}

func TestSlowFaultStretchesTheSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		require.Equal(t, 200, s.status(t, http.MethodPost, "/admin/faults", `{"slow":4}`))
		got := <-s.stream(t, "2")
		assert.Equal(t, []time.Duration{4*10*ms + 4*900*time.Microsecond, 4*21*ms + 4*900*time.Microsecond}, got.tokens)
		require.Equal(t, 204, s.status(t, http.MethodDelete, "/admin/faults", ""))
		start := s.now()
		got = <-s.stream(t, "1")
		assert.Equal(t, start+10*ms+900*time.Microsecond, got.tokens[0])
	})
}

func TestSlowHeaderStretchesOneAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		slow := <-s.stream(t, "3", "x-fault", "slow=4")
		assert.Equal(t, []time.Duration{43600 * time.Microsecond, 87600 * time.Microsecond, 131600 * time.Microsecond}, slow.tokens)
		assert.True(t, slow.done)
	})
}

func TestHungRequestsAreNeverAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		hung := s.stream(t, "3", "x-fault", "hang")
		require.Equal(t, 200, s.status(t, http.MethodPost, "/admin/faults", `{"metricsHang":true}`))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://server/metrics", nil)
		require.NoError(t, err)
		_, err = s.client.Do(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Empty(t, hung)

		s.stop()
		require.NoError(t, s.wait())
		got := <-hung
		require.ErrorContains(t, got.err, "EOF")
		assert.Equal(t, time.Hour+5*time.Second, got.end, "hanging requests do not delay a drain")
	})
}

func TestModelLoadsBeforeRequestsAreServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.StartupDelay = time.Minute
		s := serve(t, cfg)
		const request = `{"model":"m","prompt":"Hello","max_tokens":1}`
		time.Sleep(time.Minute - ms)
		assert.Equal(t, []int{503, 503, 503}, []int{s.status(t, "GET", "/ready", ""), s.status(t, "GET", "/health", ""),
			s.status(t, "POST", "/v1/completions", request)})
		time.Sleep(ms)
		synctest.Wait()
		assert.Equal(t, []int{200, 200, 200}, []int{s.status(t, "GET", "/ready", ""), s.status(t, "GET", "/health", ""),
			s.status(t, "POST", "/v1/completions", request)})
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		early := s.stream(t, "3000") // 33 s
		time.Sleep(time.Second)
		s.stop()
		synctest.Wait()
		assert.Equal(t, 503, s.status(t, "GET", "/ready", ""), "the server becomes not ready immediately")
		assert.Equal(t, 200, s.status(t, "GET", "/health", ""))
		time.Sleep(4900 * ms)
		late := s.stream(t, "1000") // picked before the picker noticed the drain
		time.Sleep(200 * ms)
		assert.Equal(t, 0, s.status(t, "GET", "/ready", ""), "the server does not listen after the delay")

		gotEarly, gotLate := <-early, <-late
		assert.Equal(t, []error{nil, nil}, []error{gotEarly.err, gotLate.err})
		assert.Equal(t, []bool{true, true}, []bool{gotEarly.done, gotLate.done}, "streams end in [DONE]")
		assert.Equal(t, []int{3000, 1000}, []int{len(gotEarly.tokens), len(gotLate.tokens)})
		end := s.now()
		require.NoError(t, s.wait())
		assert.InDelta(t, end.Seconds(), s.now().Seconds(), 1, "the server stops after its last request")
	})
}

func TestDrainOfAnIdleServerTakesItsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		s.stop()
		require.NoError(t, s.wait())
		assert.Equal(t, 5*time.Second, s.now())
	})
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.ShutdownTimeout = 10 * time.Second
		s := serve(t, cfg)
		long := s.stream(t, "3000")
		time.Sleep(time.Second)
		s.stop()
		require.NoError(t, s.wait())
		assert.Equal(t, 16*time.Second, s.now())
		got := <-long
		require.ErrorContains(t, got.err, "EOF")
		assert.False(t, got.done)
	})
}

func TestNoDrain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.ShutdownTimeout = 0
		s := serve(t, cfg)
		cut := s.stream(t, "3000")
		time.Sleep(time.Second)
		s.stop()
		require.NoError(t, s.wait())
		assert.Equal(t, time.Second, s.now())
		got := <-cut
		require.ErrorContains(t, got.err, "EOF")
	})
}

// A draining server closes each connection after its answer, so that no client reuses a connection that is about to close.
func TestConnectionsAreNotKeptWhileDraining(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, testConfig())
		s.stop()
		synctest.Wait()
		response, err := s.open(t, http.MethodGet, "/version", "")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.True(t, response.Close)
	})
}

func TestServeFailsWithItsListener(t *testing.T) {
	t.Parallel()
	l := memnet.Listen()
	require.NoError(t, l.Close())
	require.ErrorContains(t, Serve(t.Context(), testConfig(), l, zap.NewNop()), "serve HTTP: ")
}
