package modelserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// namedPage is the page of a server with a model.
func namedPage(model string) http.HandlerFunc {
	return text(fmt.Sprintf("vllm:num_requests_running{engine=\"0\",model_name=\"%s\"} 1.0\nvllm:num_requests_waiting{model_name=\"second\"} 0\n", model))
}

// counts remembers samples. It takes more tokens than bytes for impossible, like the estimator.
type counts struct {
	mu  sync.Mutex
	got []string
}

func (c *counts) RecordSampleCount(model string, bytes, tokens int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tokens <= 0 || tokens > bytes {
		return false
	}
	c.got = append(c.got, fmt.Sprint(model, " ", tokens))
	return true
}

func (c *counts) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// tokenServer has a metrics page and /tokenize, which a test can change.
type tokenServer struct {
	*modelServer

	tokenize atomic.Pointer[http.HandlerFunc]
	asked    atomic.Int64
}

func newTokenServer(t *testing.T, page, tokenize http.HandlerFunc) *tokenServer {
	t.Helper()
	s := &tokenServer{}
	s.tokenize.Store(&tokenize)
	s.modelServer = newModelServer(t, page)
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			s.asked.Add(1)
			(*s.tokenize.Load())(w, r)
			return
		}
		(*s.page.Load())(w, r)
	})
	return s
}

// newProbingWorker returns a worker of a scraper that does not run, and the counts that it passes on.
func newProbingWorker(t *testing.T, e *endpoint.Endpoint, timeout time.Duration) (*worker, *counts) {
	t.Helper()
	got := &counts{}
	o := quick()
	o.ProbeTokenizers, o.Timeout = true, timeout
	s := inMemory(ScraperParams{Options: o, Log: zap.NewNop(), ObserveScrape: unobserved, Outliers: deaf{}, RecordSampleCount: got.RecordSampleCount})
	return newWorker(t, s, e), got
}

// scrapeAll scrapes a number of times, an hour apart, and waits for what each scrape begins.
func (w *worker) scrapeAll(times int) {
	for i := range times {
		w.scrapeOnce(time.Now().Add(time.Duration(i) * time.Hour))
		w.scrapes.Wait()
	}
}

// vllmAnswer answers like vLLM, with as many tokens as the prompt has characters.
func vllmAnswer(t *testing.T) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Model   *string `json:"model"`
			Prompt  string  `json:"prompt"`
			Special *bool   `json:"add_special_tokens"`
		}
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.NoError(t, json.Unmarshal(body, &asked))
		assert.Equal(t, "/tokenize", r.URL.Path)
		assert.Equal(t, "application/json", r.Header.Get("Content-Type"), "vLLM refuses others")
		assert.Equal(t, sampleText, asked.Prompt)
		assert.False(t, *asked.Special)
		ids := strings.Repeat("151643,", utf8.RuneCountInString(asked.Prompt)-1) + "0"
		_, _ = fmt.Fprintf(w, `{"count":%d,"max_model_len":40960,"tokens":[%s],"token_strs":null}`, utf8.RuneCountInString(asked.Prompt), ids)
	}
}

// silence reads a question, reports it, and answers nothing before the picker gives up.
func silence(asked chan<- struct{}) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that the connection ends
		asked <- struct{}{}
		<-r.Context().Done()
	}
}

func TestSampleText(t *testing.T) {
	t.Parallel()
	assert.True(t, utf8.ValidString(sampleText))
	assert.InDelta(t, 4096, sampleBytes, 256, "a long prompt, for the weight of the sample in package estimate")
	var back string
	require.NoError(t, json.Unmarshal(quotedSample, &back))
	assert.Equal(t, sampleText, back)
}

func TestTokensOfTheSample(t *testing.T) {
	t.Parallel()
	characters := utf8.RuneCountInString(sampleText)
	settled := fmt.Sprint("m ", characters)
	tests := []struct {
		name     string
		page     http.HandlerFunc
		tokenize http.HandlerFunc
		want     []string
		asked    int64
	}{
		{name: "vLLM", page: namedPage("m"), tokenize: vllmAnswer(t), want: []string{settled}, asked: 1},
		{
			// Some tokenizers have no limit, which is then this number.
			name: "SGLang", page: text("sglang:num_running_reqs{engine_type=\"unified\",model_name=\"m\",tp_rank=\"0\"} 1\nvllm:num_requests_running{model_name=\"m\"} 1\n"),
			tokenize: text(`{"tokens":[1,2,3],"count":3,"max_model_len":1000000000000000019884624838656}`), want: []string{"m 3"}, asked: 1,
		},
		{name: "escaped name", page: namedPage(`a\"b\\c`), tokenize: vllmAnswer(t), want: []string{fmt.Sprint(`a"b\c `, characters)}, asked: 1},
		{name: "no name", page: text("vllm:num_requests_running 1\n"), tokenize: vllmAnswer(t)},
		{name: "long name", page: text("vllm:num_requests_running{model_name=\"" + strings.Repeat("m", maxModelName+1) + "\"} 1\n"), tokenize: vllmAnswer(t)},
		{name: "no such page", page: namedPage("m"), tokenize: status(http.StatusNotFound), asked: 1},
		{name: "no such method", page: namedPage("m"), tokenize: status(http.StatusMethodNotAllowed), asked: 1},
		{name: "not implemented", page: namedPage("m"), tokenize: status(http.StatusNotImplemented), asked: 1},
		{name: "key required", page: namedPage("m"), tokenize: status(http.StatusUnauthorized), asked: 1},
		{name: "error", page: namedPage("m"), tokenize: status(http.StatusInternalServerError), asked: maxSampleTries},
		{name: "redirect", page: namedPage("m"), tokenize: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusTemporaryRedirect)
		}, asked: maxSampleTries},
		{name: "HTML", page: namedPage("m"), tokenize: text("<!doctype html><title>Welcome</title>"), asked: maxSampleTries},
		{name: "text for a number", page: namedPage("m"), tokenize: text(`{"count":"12"}`), asked: maxSampleTries},
		{name: "list of counts", page: namedPage("m"), tokenize: text(`{"count":[12]}`), asked: maxSampleTries},
		{name: "fraction", page: namedPage("m"), tokenize: text(`{"count":1e99}`), asked: maxSampleTries},
		{name: "huge", page: namedPage("m"), tokenize: text(`{"tokens":[` + strings.Repeat("1,", maxSampleAnswer) + `1],"count":3}`), asked: maxSampleTries},
		{name: "cut short", page: namedPage("m"), tokenize: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`{"count":3`))
		}, asked: maxSampleTries},
		{name: "other answer", page: namedPage("m"), tokenize: text(`{"tokens":[1,2,3]}`), asked: 1},
		{name: "too few", page: namedPage("m"), tokenize: text(`{"count":0}`), asked: 1},
		{name: "too many", page: namedPage("m"), tokenize: text(fmt.Sprintf(`{"count":%d}`, sampleBytes+1)), asked: 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := newTokenServer(t, tt.page, tt.tokenize)
			e := server.endpoint()
			if tt.name == "SGLang" {
				relabel(e, EngineSGLang)
			}
			w, got := newProbingWorker(t, e, kubetest.Patience)
			w.scrapeAll(maxSampleTries + 3)
			assert.Equal(t, tt.want, got.all())
			assert.Equal(t, tt.asked, server.asked.Load())
			assert.Zero(t, e.StatsAt(time.Now()).ScrapeFailures, "the page does not suffer from it")
		})
	}
}

// A server that never answers keeps one connection, no scrape, and nothing for longer than the timeout.
func TestSilentTokenizerDelaysNoScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		server := newTokenServer(t, namedPage("m"), silence(silent))
		w, got := newProbingWorker(t, server.endpoint(), 300*time.Millisecond)
		w.scrapeOnce(time.Now())
		<-silent
		for i := range 10 {
			w.scrapeOnce(time.Now().Add(time.Duration(i) * time.Hour))
		}
		assert.EqualValues(t, 1, server.asked.Load(), "one at a time")
		w.scrapes.Wait()
		assert.False(t, w.sampling.busy.Load())
		assert.Empty(t, got.all())
		assert.Equal(t, maxSampleTries-1, w.sampling.triesLeft)
	})
}

func TestRemovedEndpointEndsTheQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		server := newTokenServer(t, namedPage("m"), silence(silent))
		w, got := newProbingWorker(t, server.endpoint(), time.Hour)
		w.scrapeOnce(time.Now())
		<-silent
		w.cancel()
		w.scrapes.Wait()
		assert.Empty(t, got.all())
	})
}

// Retries wait like failing scrapes: the fastest interval, then doubling up to a second.
func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	server := newTokenServer(t, namedPage("m"), status(http.StatusServiceUnavailable))
	w, got := newProbingWorker(t, server.endpoint(), kubetest.Patience)
	w.params.Options.Interval = Interval{Fastest: 100 * time.Millisecond, Slowest: time.Second}
	configure(t, w.Scraper, DefaultSettings())
	began := time.Now()
	var at []time.Duration
	for since := time.Duration(0); since < 10*time.Second; since += 50 * time.Millisecond {
		before := server.asked.Load()
		w.scrapeOnce(began.Add(since))
		w.scrapes.Wait()
		if server.asked.Load() > before {
			at = append(at, since)
		}
	}
	ms := time.Millisecond
	assert.Equal(t, []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms}, at)
	assert.Empty(t, got.all())
}

func TestServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	server := newTokenServer(t, namedPage("m"), text(`{"count":1000}`))
	w, got := newProbingWorker(t, server.endpoint(), kubetest.Patience)
	w.scrapeAll(3)
	require.Equal(t, []string{"m 1000"}, got.all())

	page := namedPage("other")
	server.page.Store(&page)
	w.scrapeAll(3)
	assert.Len(t, got.all(), 2, "its page names another model")

	failing := status(http.StatusInternalServerError)
	server.page.Store(&failing)
	w.scrapeAll(1)
	server.page.Store(&page)
	w.scrapeAll(3)
	assert.Len(t, got.all(), 2, "a page that fails is no restart")

	configure(t, w.Scraper, DefaultSettings())
	w.scrapeAll(3)
	assert.Len(t, got.all(), 3, "the settings may name another port")
}

// A server process that ends refuses connections until the next one listens.
func TestRestartedServerIsAskedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newTokenServer(t, namedPage("m"), status(http.StatusNotFound))
		e := server.endpoint()
		w, got := newProbingWorker(t, e, kubetest.Patience)
		w.scrapeAll(3)
		require.EqualValues(t, 1, server.asked.Load())

		target := w.target
		w.hangUp()
		w.target = endpointAt("127.0.0.1:1").Description().Address // no server has this port
		w.scrapeAll(1)
		require.NotZero(t, e.Load().Failing)
		w.target = target
		answer := text(`{"count":1000}`)
		server.tokenize.Store(&answer)
		w.scrapeAll(3)
		assert.Equal(t, []string{"m 1000"}, got.all())
		assert.EqualValues(t, 2, server.asked.Load())
	})
}

// A page that names another model each time gets a request a second.
func TestChangingNamesAreAskedForOnceASecond(t *testing.T) {
	t.Parallel()
	var pages atomic.Int64
	server := newTokenServer(t, func(w http.ResponseWriter, r *http.Request) { namedPage(fmt.Sprint("m", pages.Add(1)))(w, r) }, text(`{"count":1000}`))
	w, _ := newProbingWorker(t, server.endpoint(), kubetest.Patience)
	w.params.Options.Interval = Interval{Fastest: 100 * time.Millisecond, Slowest: time.Second}
	configure(t, w.Scraper, DefaultSettings())
	began := time.Now()
	for i := range 200 { // 20 seconds
		w.scrapeOnce(began.Add(time.Duration(i) * 100 * time.Millisecond))
		w.scrapes.Wait()
	}
	assert.InDelta(t, 20, server.asked.Load(), 4)
}

func TestTokenizersAreNotAskedIfTurnedOff(t *testing.T) {
	t.Parallel()
	server := newTokenServer(t, namedPage("m"), vllmAnswer(t))
	w, got := newProbingWorker(t, server.endpoint(), kubetest.Patience)
	w.params.Options.ProbeTokenizers = false
	w.scrapeAll(3)
	assert.Empty(t, got.all())
	assert.Zero(t, server.asked.Load())
}

// The question uses the scheme of the scraper, and its certificates.
func TestTokensOverTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := startModelServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				vllmAnswer(t)(w, r)
				return
			}
			namedPage("m")(w, r)
		}, newCertificate(t))
		w, got := newProbingWorker(t, server.endpoint(), time.Second)
		settings := DefaultSettings()
		settings.Source.Scheme = schemeHTTPS
		configure(t, w.Scraper, settings)
		w.scrapeAll(2)
		assert.Len(t, got.all(), 1)
	})
}

func TestRunEndsWithAnOpenQuestion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		silent := make(chan struct{})
		server := newTokenServer(t, namedPage("m"), silence(silent))
		o := quick()
		o.ProbeTokenizers, o.Timeout = true, time.Hour
		start(t, o, server.endpoint())
		<-silent
	})
}

// FuzzReadCount reads answers of any kind.
func FuzzReadCount(f *testing.F) {
	f.Add(http.StatusOK, []byte(`{"count":3}`))
	f.Add(http.StatusOK, []byte(`{}`))
	f.Add(http.StatusNotFound, []byte(nil))
	f.Fuzz(func(t *testing.T, status int, answer []byte) {
		tokens, err := readCount(&http.Response{StatusCode: status, Body: io.NopCloser(bytes.NewReader(answer))})
		if err != nil {
			assert.Zero(t, tokens)
		}
	})
}
