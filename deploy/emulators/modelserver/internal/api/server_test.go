package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/pkg/steptime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testSpec = engine.Spec{
	MaxNumSeqs: 8, MaxNumBatchedTokens: 1000, NumBlocks: 1000, BlockSize: 16, MaxModelLen: 1000, MaxLoRAs: 2,
	Law: steptime.Law{Base: 200 * time.Microsecond}, Speed: 1,
}

// testServer is a server in a bubble, and a client in memory.
type testServer struct {
	*Server

	url      string
	listener *memnet.Listener
	client   *http.Client
}

// address is the address of connections to a server.
var address = &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 8000}

// addressed is a listener whose connections have an address.
type addressed struct{ *memnet.Listener }

func (l addressed) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return addressedConn{conn}, err
}

type addressedConn struct{ net.Conn }

func (addressedConn) LocalAddr() net.Addr { return address }

func start(t *testing.T, change func(*Params)) *testServer {
	t.Helper()
	p := Params{
		PodName: "pod-a", Models: []string{"m", "m-alias"}, Adapters: []string{"lora-a"}, Seed: 1, Version: "0.32.0",
		Tokenizer: tokens.FourBytes{}, Habits: Habits{ReadyPath: true, PromptTokensDetails: true},
		Spec: testSpec, Faults: faults.NewRegister(1, faults.Set{}), Log: zap.NewNop(),
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
	l := memnet.Listen()
	server := &http.Server{Handler: s, Protocols: new(http.Protocols), ErrorLog: zap.NewStdLog(zap.NewNop())}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(addressed{l})
	}()
	transport := &http.Transport{DialContext: l.Dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		assert.NoError(t, server.Close())
		<-served
		cancel()
		<-done
	})
	return &testServer{Server: s, url: "http://" + address.String(), listener: l, client: &http.Client{Transport: transport}}
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
	return regexp.MustCompile(`"created":[0-9]{9}\b`).ReplaceAllString(s, `"created":0`)
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

// speakHTTP2 replaces the client of a server.
func (s *testServer) speakHTTP2(t *testing.T) {
	t.Helper()
	transport := &http.Transport{DialContext: s.listener.Dial, Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t, unchanged)
		s.speakHTTP2(t)
		got := s.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`)
		assert.Equal(t, 5, readStream(t, got.body).deltas)
		dropped := start(t, func(p *Params) { p.AllowFaultHeader = true })
		dropped.speakHTTP2(t)
		got = dropped.post(t, chat, `{"model":"m","messages":[{"role":"user","content":"Hello"}],"max_tokens":5,"stream":true}`, "x-fault", "drop,tokens=2")
		require.ErrorContains(t, got.err, "INTERNAL_ERROR", "a dropped stream is reset")
	})
}

func TestClientThatLeavesIsAborted(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		synctest.Test(t, func(t *testing.T) {
			s := start(t, func(p *Params) { p.Spec.Law.Base = 5 * time.Millisecond })
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // in the middle of the answer, which takes 4.5 s
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+text,
				bytes.NewReader([]byte(`{"model":"m","prompt":"Hello","max_tokens":900,"stream":`+stream+`}`)))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			response, err := s.client.Do(r)
			if err == nil {
				_, err = io.ReadAll(response.Body)
				require.NoError(t, response.Body.Close())
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			synctest.Wait()
			stats := s.Driver.Stats()
			assert.EqualValues(t, 1, stats.Finished[engine.ReasonAbort])
			assert.Equal(t, []int{0, 0, 0}, []int{stats.Running, stats.Waiting, stats.BlocksUsed})
		})
	}
}
