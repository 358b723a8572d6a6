package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/steptime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fastSpec is fast enough for tests in real time.
var fastSpec = engine.Spec{
	MaxNumSeqs: 8, MaxNumBatchedTokens: 1000, NumBlocks: 1000, BlockSize: 16, MaxModelLen: 1000, MaxLoRAs: 2,
	Law: steptime.Law{Base: 200 * time.Microsecond}, Speed: 1,
}

// testServer is a listening server.
type testServer struct {
	*Server
	url    string
	client *http.Client
}

func start(t *testing.T, change func(*Params)) *testServer {
	t.Helper()
	p := Params{
		PodName: "pod-a", Models: []string{"m", "m-alias"}, Adapters: []string{"lora-a"}, Seed: 1, Version: "0.32.0",
		Tokenizer: tokens.FourBytes{}, Habits: Habits{ReadyPath: true, PromptTokensDetails: true},
		Spec: fastSpec, Faults: faults.NewRegister(1), Log: zap.NewNop(),
	}
	change(&p)
	p.Driver = engine.NewDriver(p.Spec)
	p.Page = metrics.NewPage(metrics.Params{Model: "m", Spec: p.Spec, Started: time.Now()})
	s := New(p)
	s.Loaded()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Driver.Run(ctx)
	}()
	server := httptest.NewUnstartedServer(s)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		cancel()
		<-done
	})
	return &testServer{Server: s, url: server.URL, client: server.Client()}
}

func unchanged(*Params) {}

// reply is a complete answer.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (s *testServer) do(t *testing.T, method, path, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := s.client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { require.NoError(t, response.Body.Close()) }()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text), err}
}

func (s *testServer) post(t *testing.T, path, body string, header ...string) reply {
	t.Helper()
	return s.do(t, http.MethodPost, path, body, header...)
}

// mask replaces ids and times, which differ in each run.
func mask(s string) string {
	s = regexp.MustCompile(`"id":"(chatcmpl-|cmpl-|modelperm-)[0-9a-f]{32}"`).ReplaceAllString(s, `"id":"${1}ID"`)
	return regexp.MustCompile(`"created":1[0-9]{9}\b`).ReplaceAllString(s, `"created":0`)
}

const (
	chat = "/v1/chat/completions"
	text = "/v1/completions"
)

// stream is the content of a streamed answer, by choice.
type stream struct {
	text    map[int]string
	deltas  int
	reasons map[int]string
	usage   *usage
}

func readStream(t *testing.T, body string) stream {
	t.Helper()
	require.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), "a stream ends in [DONE]")
	got := stream{text: map[int]string{}, reasons: map[int]string{}}
	lines := bufio.NewScanner(strings.NewReader(strings.TrimSuffix(body, "data: [DONE]\n\n")))
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if lines.Text() == "" {
			continue
		}
		require.True(t, ok, lines.Text())
		var chunk struct {
			Choices []struct {
				Index        int
				Text         string
				Delta        struct{ Content string }
				FinishReason string `json:"finish_reason"`
			}
			Usage *usage
		}
		require.NoError(t, json.Unmarshal([]byte(data), &chunk))
		for _, c := range chunk.Choices {
			if piece := c.Text + c.Delta.Content; piece != "" {
				require.Len(t, piece, 4)
				got.deltas++
				got.text[c.Index] += piece
			}
			got.reasons[c.Index] += c.FinishReason
		}
		got.usage = chunk.Usage
	}
	return got
}

func jsonInt(n int) string {
	b, _ := json.Marshal(n)
	return string(b)
}

func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	s := start(t, unchanged)
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	s.client = &http.Client{Transport: transport}
	t.Cleanup(transport.CloseIdleConnections)
	got := s.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`)
	assert.Equal(t, 5, readStream(t, got.body).deltas)
	dropped := start(t, func(p *Params) { p.AllowFaultHeader = true })
	dropped.client = s.client
	got = dropped.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`, "x-fault", "drop=2")
	require.ErrorContains(t, got.err, "INTERNAL_ERROR", "a dropped stream is reset")
}

func TestClientThatLeavesIsAborted(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		s := start(t, func(p *Params) { p.Spec.Law.Base = 5 * time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+text,
			bytes.NewReader([]byte(`{"model":"m","prompt":"Hello","max_tokens":900,"stream":`+stream+`}`)))
		require.NoError(t, err)
		r.Header.Set("Content-Type", "application/json")
		go func() {
			for s.Driver.Stats().Running == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		response, err := s.client.Do(r)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			require.NoError(t, response.Body.Close())
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Eventually(t, func() bool { return s.Driver.Stats().Finished[engine.ReasonAbort] == 1 }, 5*time.Second, time.Millisecond)
		stats := s.Driver.Stats()
		assert.Equal(t, []int{0, 0, 0}, []int{stats.Running, stats.Waiting, stats.BlocksUsed})
	}
}
