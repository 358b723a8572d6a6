package httpproxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/limits"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePool picks the first of its endpoints. It records the requests.
type fakePool struct {
	decision request.Decision // what a pick decides besides the endpoint
	refuse   *request.Refusal

	mu        sync.Mutex
	endpoints []*endpoint.Endpoint
	bodies    []string
	records   []request.Record
	hosts     []string
	headers   []string // what the picks read
	failures  []string // servers that did not answer
	signals   []request.HealthSignal
}

func (p *fakePool) failed(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, address)
}

func (p *fakePool) FindHost(host string) request.Pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts = append(p.hosts, host)
	return p
}

func (p *fakePool) add(address string) *endpoint.Endpoint {
	id := endpoint.Identity{Pod: address, Address: netip.MustParseAddrPort(address)}
	e := endpoint.New(endpoint.Description{Identity: id}, time.Now(), nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endpoints = append(p.endpoints, e)
	return e
}

func (*fakePool) OnRequestStart() {}

func (p *fakePool) OnRequestEnd(r *request.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.records = append(p.records, *r)
}

func (p *fakePool) PlaceRequest(_ context.Context, in *request.PickInput) (request.PickResult, *request.Refusal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, string(in.Incoming.Body))
	for _, h := range in.Incoming.Headers {
		p.headers = append(p.headers, h.Name+"="+h.Value)
	}
	result := request.PickResult{Decision: p.decision, Pending: p}
	switch {
	case p.refuse != nil:
		return result, p.refuse
	case len(p.endpoints) == 0:
		return result, request.Unavailable(errors.New("no ready endpoints in the pool"))
	}
	result.Endpoint = p.endpoints[0]
	result.Placements[request.Decode] = result.Endpoint.Acquire()
	for _, e := range p.endpoints {
		result.Ranking = append(result.Ranking, request.Score{Endpoint: e})
	}
	return result, nil
}

// ended waits until n requests have ended, and returns their records.
func (p *fakePool) ended(t testing.TB, n int) []request.Record {
	t.Helper()
	var records []request.Record
	await(t, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		records = p.records
		return len(records) >= n
	})
	return records
}

func (p *fakePool) inFlight() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.endpoints {
		n += e.StatsAt(time.Now()).InFlight
	}
	return n
}

func (p *fakePool) CommitPick(*request.Record) request.ResponseObserver { return p }
func (*fakePool) DiscardPick()                                          {}
func (*fakePool) ObserveResponder()                                     {}
func (*fakePool) ObserveContent()                                       {}
func (*fakePool) ObserveAnswer()                                        {}
func (p *fakePool) ObserveAttempt(address string, _ int, _ string)      { p.failed(address) }

func (p *fakePool) ObserveHealth(h request.HealthReport) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, h.Signal)
	return time.Time{}
}

// rig is a proxy that runs.
type rig struct {
	*Server

	t       testing.TB
	pool    *fakePool
	ledger  *limits.Ledger
	address string // where it listens
	connect func(ctx context.Context, network, address string) (net.Conn, error)

	// listenBack returns a listener of a model server, and its address.
	listenBack func() (l net.Listener, address string)
}

func testOptions() Options {
	return Options{
		Options: request.Options{Now: time.Now, Wanted: &request.WantedHeaders{}},
		Address: "127.0.0.1:0", MaxRequestBody: 1 << 20, BodyTimeout: time.Minute, IdleTimeout: time.Hour, SendTimeout: 30 * time.Second, MaxAttempts: 3,
	}
}

// start runs a proxy until the end of a bubble, when nothing may be counted anymore. Clients and model servers have connections within the
// process.
func start(t testing.TB, o Options, l limits.Limits) *rig {
	t.Helper()
	r := newRig(t, o, l)
	memory, backs := memnet.Listen(), map[string]*memnet.Listener{}
	r.AttachListener(memory)
	r.address, r.connect = "proxy.example", memory.From(netip.MustParseAddrPort("192.0.2.1:1000"))
	r.listenBack = func() (net.Listener, string) {
		address := "10.0.0." + strconv.Itoa(len(backs)+1) + ":8000"
		backs[address] = memnet.Listen()
		return backs[address], address
	}
	r.upstream = newUpstream(o.MaxServerConns, func(ctx context.Context, _, address string) (net.Conn, error) {
		if backs[address] == nil {
			<-ctx.Done() // a node that has gone
			return nil, ctx.Err()
		}
		return backs[address].Dial(ctx, "", "")
	})
	r.run()
	return r
}

func newRig(t testing.TB, o Options, l limits.Limits) *rig {
	pool, ledger := &fakePool{}, limits.NewLedger(l)
	return &rig{t: t, pool: pool, ledger: ledger, Server: New(Params{
		Options: o, Log: zap.NewNop(), Pools: pool, Ledger: ledger,
	})}
}

func (r *rig) run() {
	done := make(chan error, 1)
	go func() { done <- r.Run() }()
	r.t.Cleanup(func() {
		r.Close()
		require.NoError(r.t, <-done)
		assert.Zero(r.t, r.InFlight())
		await(r.t, func() bool {
			return r.ledger.TotalUse(limits.Bytes) == 0 && r.ledger.TotalUse(limits.Streams) == 0
		})
		await(r.t, func() bool { return r.OpenConns() == 0 && len(r.upstream.serverStats()) == 0 })
	})
}

// await waits for a condition.
func await(t testing.TB, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, kubetest.Patience, time.Millisecond)
}

// serve adds a model server with a handler, and returns its address.
func (r *rig) serve(h http.HandlerFunc) string {
	r.t.Helper()
	return r.serveHTTP(&http.Server{Handler: h})
}

// serveHTTP adds a model server.
func (r *rig) serveHTTP(s *http.Server) string {
	r.t.Helper()
	l, address := r.listenBack()
	r.pool.add(address)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	r.t.Cleanup(func() {
		_ = s.Close()
		serving.Wait()
	})
	return address
}

// serveRaw adds a model server that handles its connections itself: the n-th one from 0 on.
func (r *rig) serveRaw(handle func(n int, c net.Conn)) {
	r.t.Helper()
	l, address := r.listenBack()
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() {
				defer func() { _ = c.Close() }()
				handle(n, c)
			})
		}
	})
	r.t.Cleanup(func() {
		_ = l.Close()
		handlers.Wait()
	})
	r.pool.add(address)
}

// refusing adds an endpoint that nobody listens at.
func (r *rig) refusing() {
	r.t.Helper()
	l, address := r.listenBack()
	r.pool.add(address)
	require.NoError(r.t, l.Close())
}

// client returns a client with its own connections.
func (r *rig) client() *http.Client {
	transport := &http.Transport{DisableCompression: true, DialContext: r.connect}
	r.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// reply is a response that was read.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of the body
}

// do sends a request. Headers are names and values in turns.
func (r *rig) do(c *http.Client, method, path, body string, headers ...string) reply {
	r.t.Helper()
	a, err := r.try(r.t.Context(), c, method, path, body, headers...)
	require.NoError(r.t, err)
	return a
}

func (r *rig) try(ctx context.Context, c *http.Client, method, path, body string, headers ...string) (reply, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+r.address+path, reader)
	if err != nil {
		return reply{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	response, err := c.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text), err}, nil
}

// dial returns a plain connection to the proxy, and its reader.
func (r *rig) dial() (net.Conn, *bufio.Reader) {
	r.t.Helper()
	c, err := r.connect(r.t.Context(), "tcp", r.address)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = c.Close() })
	return c, bufio.NewReader(c)
}

// send writes text to a connection, and reads one response.
func send(t testing.TB, c net.Conn, from *bufio.Reader, text string) reply {
	t.Helper()
	_, err := io.WriteString(c, text)
	require.NoError(t, err)
	return receive(t, from)
}

func receive(t testing.TB, from *bufio.Reader) reply {
	t.Helper()
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(body), err}
}

// messageOf returns the message of a refusal.
func messageOf(t testing.TB, body string) string {
	t.Helper()
	var whole struct{ Error request.Error }
	require.NoError(t, json.Unmarshal([]byte(body), &whole), body)
	return whole.Error.Message
}

// reset closes a connection. With TCP, its peer gets an error instead of an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// echo answers with what came.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.Method+" "+r.RequestURI+" "+string(body))
}
