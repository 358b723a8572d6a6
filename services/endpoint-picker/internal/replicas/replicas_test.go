package replicas

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replica is a replica of the picker with one pool of one endpoint.
type replica struct {
	*Node

	member    *Member
	estimator *estimate.Estimator
	endpoint  *endpoint.Endpoint
	logs      *observer.ObservedLogs
	address   string
	stop      func()
}

// Snapshot returns the endpoint.
func (r *replica) Snapshot() *pool.Snapshot {
	if r.endpoint == nil {
		return &pool.Snapshot{}
	}
	return &pool.Snapshot{Endpoints: []*endpoint.Endpoint{r.endpoint}}
}

// hosts are the addresses of the name "replicas".
type hosts struct {
	mu  sync.Mutex
	ips []string
	err error
}

func (h *hosts) LookupHost(context.Context, string) ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ips, h.err
}

// network is a network in memory. Its hosts have an address each.
type network struct {
	mu        sync.Mutex
	listeners map[string]*memnet.Listener
}

func newNetwork() *network { return &network{listeners: map[string]*memnet.Listener{}} }

// listen returns a listener with an address of its own.
func (n *network) listen() (l net.Listener, address string) {
	n.mu.Lock()
	address = fmt.Sprintf("10.0.0.%d:9004", len(n.listeners)+1)
	n.mu.Unlock()
	return n.listenAt(address), address
}

// listenAt returns a listener that gets the connections to an address from now on.
func (n *network) listenAt(address string) net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = memnet.Listen()
	return n.listeners[address]
}

// dial has the form of http.Transport.DialContext.
func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, errors.New("connection refused")
	}
	return l.Dial(ctx, "", "")
}

// addReplica returns a replica that listens.
func (n *network) addReplica(t *testing.T) *replica {
	t.Helper()
	t.Cleanup(func() { time.Sleep(time.Second) }) // the time of a bubble ends with it, and handlers may be in their linger
	r := newReplica(nil)
	r.client.Transport.(*http.Transport).DialContext = n.dial
	r.listener, r.address = n.listen()
	return r
}

// serve runs another program, and returns its address.
func (n *network) serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	l, address := n.listen()
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return address
}

func newReplica(settings *tls.Config) *replica {
	core, logs := observer.New(zapcore.InfoLevel)
	r := &replica{
		estimator: estimate.New(prefixindex.NewMemoryBudget(1 << 20)), logs: logs,
		Node: New(Params{Log: zap.New(core), BindAddress: "127.0.0.1:0", TLS: settings}),
	}
	r.endpoint = r.estimator.NewEndpoint(describe("a", "1"), time.Now())
	r.endpoint.RecordSample(r.endpoint.StartScrape(time.Now()), endpoint.Gauges{})
	r.member = r.JoinPool("pool", r.estimator, r)
	return r
}

// heardNothing returns the logged reason why another replica tells nothing.
func (r *replica) heardNothing() string {
	for _, l := range r.logs.FilterMessageSnippet("Heard nothing").All() {
		text, _ := l.ContextMap()["error"].(string)
		return text
	}
	return ""
}

// start runs the replica until its stop, or the end of the test.
func (r *replica) start(t testing.TB, addresses ...string) {
	t.Helper()
	r.params.Addresses = addresses
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.member.Run(ctx) })
	eventually(t, func() bool { return r.Node.memberOf(r.member.title) != nil },
		"joined") // others that connect before are refused, and say so
	running.Go(func() { assert.NoError(t, r.Run(ctx)) })
	r.stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(r.stop)
}

// place places a request with a prompt of some blocks.
func (r *replica) place(blocks int) *endpoint.Lease {
	p := prompt(blocks)
	r.estimator.Lookup(p, []*endpoint.Endpoint{r.endpoint}, time.Now())
	l := p.PlaceOn(r.endpoint, time.Now(), estimate.Streamed)
	r.estimator.RecordPlacement(p, r.endpoint, &estimate.Expectation{})
	return l
}

func prompt(blocks int) *estimate.Prompt {
	p := &estimate.Prompt{Chain: &prefixindex.Chain{}, Tokens: blocks * prefixindex.BlockTokens}
	p.Chain.Reset(1, blocks)
	p.Chain.Write(make([]byte, blocks*prefixindex.BlockTokens*prefixindex.BytesPerToken))
	return p
}

// cached returns the tokens of a prompt that the replica believes to be in the cache. The last block is always computed.
func (r *replica) cached(blocks int) int {
	p := prompt(blocks)
	r.estimator.Lookup(p, []*endpoint.Endpoint{r.endpoint}, time.Now())
	load := r.endpoint.Load()
	return p.Estimate(r.endpoint, &load).Cached
}

func eventually(t testing.TB, is func() bool, what string) {
	t.Helper()
	require.Eventually(t, is, kubetest.Patience, time.Millisecond, what)
}

// pair is two replicas that hear each other.
func pair(t *testing.T, n *network) (a, b *replica) {
	t.Helper()
	a, b = n.addReplica(t), n.addReplica(t)
	for _, r := range []*replica{a, b} {
		r.start(t, a.address, b.address) // its own address is among them
	}
	for _, r := range []*replica{a, b} {
		eventually(t, func() bool { return r.member.connected.Load() == 1 && r.member.CheckReady() == nil }, "connected")
	}
	return a, b
}

func TestReplicasHearEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, newNetwork())
		for i, r := range [][2]*replica{{a, b}, {b, a}} {
			blocks := 10 * (1 + i) // of the second prompt they know the first half
			l := r[0].place(blocks)
			eventually(t, func() bool { return r[1].endpoint.Load().Open == 1 && r[1].cached(blocks) == 16*blocks-16 }, "placed")
			assert.Equal(t, int64(160), estimate.ServerOf(r[1].endpoint).Backlog())
			l.MarkFirstContent(time.Now())
			eventually(t, func() bool { return estimate.ServerOf(r[1].endpoint).Backlog() == 0 }, "first token")
			l.Release()
			eventually(t, func() bool { return r[1].endpoint.Load().Open == 0 }, "ended")
			r[0].estimator.RecordAnswer(r[0].endpoint, 1600)
			eventually(t, func() bool {
				want, _ := r[0].estimator.CacheSize(r[0].endpoint)
				got, _ := r[1].estimator.CacheSize(r[1].endpoint)
				return got == want
			}, "answered")
		}
		sent, received := a.member.ReplicaStats(), b.member.ReplicaStats()
		assert.Equal(t, []int64{5, 5, 1, 1}, []int64{sent.Sent, received.Received, int64(sent.Readers), int64(received.Connected)})
		assert.Empty(t, a.logs.All())
	})
}

// A new replica knows what the caches contain before it is ready.
func TestNewReplicaIsWarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.addReplica(t), n.addReplica(t)
		a.start(t, a.address)
		eventually(t, func() bool { return a.member.CheckReady() == nil }, "alone")
		for blocks := range 40 {
			a.place(blocks).Release()
		}
		require.ErrorIs(t, b.member.CheckReady(), errCold)
		b.start(t, a.address, b.address)
		eventually(t, func() bool { return b.member.CheckReady() == nil }, "warm")
		assert.Equal(t, 38*prefixindex.BlockTokens, b.cached(39))
	})
}

// A replica that dies leaves its requests to the metrics pages, and is heard again when it is back.
func TestReplicaDiesAndComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := pair(t, n)
		a.place(10)
		eventually(t, func() bool { return b.endpoint.Load().Open == 1 }, "placed")
		a.stop()
		eventually(t, func() bool { return b.member.connected.Load() == 0 }, "disconnected")
		synctest.Wait() // what the follower had is gone
		b.endpoint.RecordSample(b.endpoint.StartScrape(time.Now()), endpoint.Gauges{})
		assert.Zero(t, b.endpoint.Load().Open)
		lost := func() int { return b.logs.FilterMessageSnippet("Heard nothing from another replica").Len() }
		eventually(t, func() bool { return lost() > 0 }, "logged")

		again := n.addReplica(t)
		again.listener, again.address = n.listenAt(a.address), a.address
		again.start(t, a.address, b.address)
		eventually(t, func() bool { return b.member.connected.Load() == 1 && again.member.CheckReady() == nil }, "connected")
		assert.Equal(t, 144, again.cached(10), "it asked the one that survived")
		again.place(3)
		eventually(t, func() bool { return b.endpoint.Load().Open == 1 }, "placed")
		assert.Equal(t, 1, lost(), "once")
	})
}

func TestReplicasWithoutAgreement(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(other *replica)
		want   string
	}{
		{"another pool", func(other *replica) { other.member.title = "other" }, "does not serve the pool"},
		{"too many readers", func(other *replica) {
			for i := range byte(maxReaders) {
				_, _ = other.member.publisher.openReader(netip.AddrFrom4([4]byte{10, 0, 0, i}))
			}
		}, "too many readers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				r, other := n.addReplica(t), n.addReplica(t)
				tt.change(other)
				other.start(t, other.address)
				r.start(t, other.address)
				eventually(t, func() bool { return r.heardNothing() != "" }, "reported")
				assert.Contains(t, r.heardNothing(), tt.want)
				eventually(t, func() bool { return r.member.CheckReady() == nil }, "it does not wait for the other one")
				assert.Zero(t, r.member.connected.Load())
			})
		})
	}
}

// Servers that are no replica, or a broken one.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		serve http.HandlerFunc
		want  string
	}{
		"another program": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }, "another version of the protocol"},
		"a later version": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerProtocol, protocol+"0")
			_, _ = w.Write([]byte{0, 1})
		}, "another version of the protocol"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		}, "302"},
		"an endless text": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, strings.Repeat("endless ", 1<<16))
		}, "418"},
		"contents among events": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerProtocol, protocol)
			_, _ = w.Write(appendFrame(nil, &Frame{Kind: Kind_COMPLETE}))
			_ = http.NewResponseController(w).Flush()
		}, "contents among the events"},
		"no frames": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerProtocol, protocol)
			_, _ = w.Write([]byte{2, 8, 77})
		}, "unknown kind"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				r := n.addReplica(t)
				r.start(t, n.serve(t, tt.serve))
				eventually(t, func() bool { return r.heardNothing() != "" }, "reported")
				assert.Contains(t, r.heardNothing(), tt.want)
				assert.Less(t, len(r.heardNothing()), 1000)
			})
		})
	}
}

// Clients that are no replica get an answer that says why.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	r := newReplica(nil)
	r.addMember(r.member)
	for _, tt := range []struct {
		method, target, protocol string
		want                     int
	}{
		{"GET", "/v1/events?pool=pool", "0", http.StatusUpgradeRequired},
		{"GET", "/v1/events?pool=other", protocol, http.StatusNotFound},
		{"POST", "/v1/events?pool=pool", protocol, http.StatusNotFound},
		{"GET", "/", protocol, http.StatusNotFound},
	} {
		request := httptest.NewRequestWithContext(t.Context(), tt.method, tt.target, http.NoBody)
		request.Header.Set(headerProtocol, tt.protocol)
		w := httptest.NewRecorder()
		r.ServeHTTP(w, request)
		assert.Equal(t, tt.want, w.Code, "%v", tt)
	}
}

// A reader that does not read costs maxPending bytes, and then nothing.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	r := newReplica(nil)
	p := r.member.publisher
	slow, _ := p.openReader(netip.Addr{})
	fast, _ := p.openReader(netip.Addr{})
	p.pending.limit = 20 << 10
	long := estimate.Event{Kind: estimate.EventCached, Endpoint: r.endpoint, Chain: make([]uint64, 1<<7)}
	var buffer []byte
	for range 20 {
		p.PublishEvent(long)
		frames, ok := p.takeFrames(fast, buffer)
		require.True(t, ok)
		buffer = frames
	}
	_, ok := p.takeFrames(slow, nil)
	assert.False(t, ok)
	assert.Empty(t, slow.pending)
	p.closeReader(slow)
	p.closeReader(fast)
	assert.Equal(t, int64(1), p.slow.Load())
	p.PublishEvent(long) // nobody listens
}

// Readers that do not read cost maxPending bytes, whatever the number of pools.
func TestSlowReadersOfManyPools(t *testing.T) {
	t.Parallel()
	pending := &pendingBytes{limit: 64 << 10}
	long := estimate.Event{Kind: estimate.EventCached, Endpoint: newReplica(nil).endpoint, Chain: make([]uint64, 1<<5)}
	var pools []*publisher
	for range 16 {
		p := newPublisher(func() time.Duration { return 0 }, pending)
		_, ok := p.openReader(netip.Addr{})
		require.True(t, ok)
		pools = append(pools, p)
	}
	for range 1000 {
		pools[0].PublishEvent(long) // one pool may need more than its part, while the others need little
	}
	assert.Greater(t, len(pools[0].frame), 200)
	held := pending.bytes.Load()
	for range 1000 {
		for _, p := range pools {
			p.PublishEvent(long)
			held = max(held, pending.bytes.Load())
		}
	}
	assert.LessOrEqual(t, held, pending.limit)
	for _, p := range pools {
		for r := range p.readers {
			p.closeReader(r)
		}
	}
	assert.Zero(t, pending.bytes.Load())
	assert.Zero(t, pending.readers.Load())
}

// A pod that is no replica opens readers without end. It gets a few, and replicas still hear of everything.
func TestHostileReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		a, b := n.addReplica(t), n.addReplica(t)
		a.start(t, b.address)
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true, DialContext: n.listeners[a.address].From(netip.MustParseAddrPort("10.0.9.9:1")),
		}}
		read := func() *http.Response {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.address+"/v1/events?pool=pool", http.NoBody)
			require.NoError(t, err)
			request.Header.Set(headerProtocol, protocol)
			response, err := client.Do(request)
			require.NoError(t, err)
			return response
		}
		eventually(t, func() bool { return a.member.CheckReady() == nil }, "alone")
		statuses := map[int]int{}
		for range 2 * maxReaders {
			response := read()
			statuses[response.StatusCode]++
			t.Cleanup(func() { _ = response.Body.Close() })
		}
		assert.Equal(t, map[int]int{http.StatusOK: maxReadersOfClient, http.StatusServiceUnavailable: 2*maxReaders - maxReadersOfClient}, statuses)

		b.start(t, a.address, b.address)
		eventually(t, func() bool { return b.member.connected.Load() == 1 && a.member.connected.Load() == 1 }, "connected")
		a.place(10)
		eventually(t, func() bool { return b.endpoint.Load().Open == 1 }, "placed")
	})
}

// The places of readers that have left are free again.
func TestPlacesOfReaders(t *testing.T) {
	t.Parallel()
	p := newPublisher(func() time.Duration { return 0 }, &pendingBytes{limit: maxPending})
	one, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	var open []*reader
	for range maxReadersOfClient {
		r, ok := p.openReader(one)
		require.True(t, ok)
		open = append(open, r)
	}
	_, ok := p.openReader(one)
	assert.False(t, ok)
	for range maxReadersOfClient + 1 {
		r, ok := p.openReader(netip.MustParseAddr("127.0.0.6"))
		assert.True(t, ok, "a sidecar connects for all replicas")
		open = append(open, r)
	}
	r, ok := p.openReader(other)
	assert.True(t, ok)
	p.closeReader(open[0])
	again, ok := p.openReader(one)
	assert.True(t, ok)
	for _, r := range append(open[1:], r, again) {
		p.closeReader(r)
	}
	assert.Empty(t, p.places.ofClient)
	assert.Empty(t, p.readers)
}

func TestLookup(t *testing.T) {
	t.Parallel()
	h := &hosts{ips: []string{"10.0.0.2", "10.0.0.1", "10.0.0.2", "fd00::1"}}
	n := New(Params{Log: zap.NewNop(), Addresses: []string{"replicas:9004"}})
	n.resolver = h
	found, err := n.lookupReplicas(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"10.0.0.1:9004", "10.0.0.2:9004", "[fd00::1]:9004"}, found)
	h.err = &net.DNSError{Err: "no such host", IsNotFound: true}
	found, err = n.lookupReplicas(t.Context())
	require.NoError(t, err, "a headless Service without pods")
	assert.Empty(t, found)
	h.err = errors.New("servfail")
	_, err = n.lookupReplicas(t.Context())
	require.ErrorContains(t, err, "servfail")
	n.params.Addresses = []string{"no port"}
	_, err = n.lookupReplicas(t.Context())
	assert.Error(t, err)
}

// A replica that hangs is gone after a time.
func TestSilentReplica(t *testing.T) {
	t.Parallel()
	for name, headers := range map[string]bool{"without headers": false, "after its headers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				r := n.addReplica(t)
				r.silence = headerTimeout / 2
				r.start(t, n.serve(t, func(w http.ResponseWriter, r *http.Request) {
					if headers {
						w.Header().Set(headerProtocol, protocol)
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				}))
				eventually(t, func() bool { return r.heardNothing() != "" && r.member.CheckReady() == nil }, "reported")
				assert.Contains(t, r.heardNothing(), "no answer for "+r.silence.String())
			})
		})
	}
}

// A pool without endpoints, or replicas that cannot be looked up, must not keep the picker from being ready.
func TestNothingToWaitFor(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(r *replica){
		"no endpoints": func(r *replica) {
			r.patience = 10 * time.Millisecond
			r.endpoint = nil
			r.resolver = &hosts{}
		},
		"no DNS": func(r *replica) { r.resolver = &hosts{err: errors.New("servfail")} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newNetwork().addReplica(t)
				change(r)
				r.start(t, "replicas:9004")
				began := time.Now()
				eventually(t, func() bool { return r.member.CheckReady() == nil }, "ready")
				assert.Less(t, time.Since(began), warmTimeout/2)
			})
		})
	}
}
