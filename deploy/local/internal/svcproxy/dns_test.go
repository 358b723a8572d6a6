package svcproxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/kubetest"
)

// world is what the name server knows in these tests.
func world() []runtime.Object {
	named := readyAt("10.244.1.5")
	named.Hostname = ptr.To("pod-0")
	headless, early := service("db", corev1.ClusterIPNone, tcp("sql", 5432)), service("early", corev1.ClusterIPNone, tcp("http", 80))
	early.Spec.PublishNotReadyAddresses = true
	return []runtime.Object{
		service("web", "10.96.0.20", tcp("http", 80), corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}),
		headless, slice("db", 1, endpointPort("sql", 15432), named, readyAt("10.244.2.6"), unreadyAt("10.244.3.7")),
		slice("db", 2, endpointPort("sql", 15432), readyAt("10.244.2.6")), // on its way from one slice to the other
		early, slice("early", 1, endpointPort("http", 8080), unreadyAt("10.244.3.7")),
		service("idle", corev1.ClusterIPNone, tcp("http", 80)),
		externalName("outer", "Example.org"), externalName("alias", "web.default.svc.cluster.local"),
		externalName("alias-of-alias", "alias.default.svc.cluster.local."), externalName("broken", "gone.default.svc.cluster.local"),
		externalName("loop", "loop.default.svc.cluster.local"), many(),
	}
}

// many is a service with more addresses than a small message holds.
func many() runtime.Object { return service("many", corev1.ClusterIPNone, tcp("http", 80)) }

func manyEndpoints(n int) runtime.Object {
	var list []discoveryv1.Endpoint
	for i := range n {
		list = append(list, readyAt(fmt.Sprintf("10.244.7.%d", i+1)))
	}
	return slice("many", 1, endpointPort("http", 8080), list...)
}

// lines are records as a zone file has them, sorted.
func lines(records []dns.RR) []string {
	var out []string
	for _, rr := range records {
		out = append(out, strings.ReplaceAll(rr.String(), "\t", " "))
	}
	slices.Sort(out)
	return out
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	server := NewDNS(d)
	tests := []struct {
		name  string
		ask   string
		kind  uint16
		want  []string
		extra []string
	}{
		{name: "service", ask: "web.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "service by any type", ask: "web.default.svc.cluster.local.", kind: dns.TypeANY, want: []string{"web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "case is kept", ask: "WEB.Default.svc.Cluster.LOCAL.", kind: dns.TypeA, want: []string{"WEB.Default.svc.Cluster.LOCAL. 5 IN A 10.96.0.20"}},
		{name: "no IPv6, but the name exists", ask: "web.default.svc.cluster.local.", kind: dns.TypeAAAA},
		{name: "headless service: ready endpoints", ask: "db.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"db.default.svc.cluster.local. 5 IN A 10.244.1.5", "db.default.svc.cluster.local. 5 IN A 10.244.2.6"}},
		{name: "headless service without endpoints", ask: "idle.default.svc.cluster.local.", kind: dns.TypeA},
		{name: "headless service that publishes unready ones", ask: "early.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"early.default.svc.cluster.local. 5 IN A 10.244.3.7"}},
		{name: "endpoint by host name", ask: "pod-0.db.default.svc.cluster.local.", kind: dns.TypeA, want: []string{"pod-0.db.default.svc.cluster.local. 5 IN A 10.244.1.5"}},
		{name: "endpoint by address", ask: "10-244-2-6.db.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"10-244-2-6.db.default.svc.cluster.local. 5 IN A 10.244.2.6"}},
		{name: "port of a service", ask: "_http._tcp.web.default.svc.cluster.local.", kind: dns.TypeSRV,
			want:  []string{"_http._tcp.web.default.svc.cluster.local. 5 IN SRV 0 100 80 web.default.svc.cluster.local."},
			extra: []string{"web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "UDP port of a service", ask: "_dns._udp.web.default.svc.cluster.local.", kind: dns.TypeSRV,
			want:  []string{"_dns._udp.web.default.svc.cluster.local. 5 IN SRV 0 100 53 web.default.svc.cluster.local."},
			extra: []string{"web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "port of a headless service", ask: "_sql._tcp.db.default.svc.cluster.local.", kind: dns.TypeSRV,
			want: []string{"_sql._tcp.db.default.svc.cluster.local. 5 IN SRV 0 100 15432 10-244-2-6.db.default.svc.cluster.local.",
				"_sql._tcp.db.default.svc.cluster.local. 5 IN SRV 0 100 15432 pod-0.db.default.svc.cluster.local."},
			extra: []string{"10-244-2-6.db.default.svc.cluster.local. 5 IN A 10.244.2.6", "pod-0.db.default.svc.cluster.local. 5 IN A 10.244.1.5"}},
		{name: "port by another type has no addresses with it", ask: "_http._tcp.web.default.svc.cluster.local.", kind: dns.TypeA},
		{name: "external name beyond the cluster", ask: "outer.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"outer.default.svc.cluster.local. 5 IN CNAME Example.org."}},
		{name: "external name itself", ask: "alias.default.svc.cluster.local.", kind: dns.TypeCNAME,
			want: []string{"alias.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local."}},
		{name: "external name of an external name itself", ask: "alias-of-alias.default.svc.cluster.local.", kind: dns.TypeCNAME,
			want: []string{"alias-of-alias.default.svc.cluster.local. 5 IN CNAME alias.default.svc.cluster.local."}},
		{name: "external name by IPv6", ask: "alias.default.svc.cluster.local.", kind: dns.TypeAAAA,
			want: []string{"alias.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local."}},
		{name: "external name that is in the cluster", ask: "alias.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"alias.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local.", "web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "external name of an external name", ask: "alias-of-alias.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"alias-of-alias.default.svc.cluster.local. 5 IN CNAME alias.default.svc.cluster.local.",
				"alias.default.svc.cluster.local. 5 IN CNAME web.default.svc.cluster.local.", "web.default.svc.cluster.local. 5 IN A 10.96.0.20"}},
		{name: "external name that leads nowhere", ask: "broken.default.svc.cluster.local.", kind: dns.TypeA,
			want: []string{"broken.default.svc.cluster.local. 5 IN CNAME gone.default.svc.cluster.local."}},
		{name: "pod by address", ask: "10-244-1-5.default.pod.cluster.local.", kind: dns.TypeA, want: []string{"10-244-1-5.default.pod.cluster.local. 5 IN A 10.244.1.5"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := new(dns.Msg).SetQuestion(tt.ask, tt.kind)
			m := server.answer(q)
			assert.Equal(t, dns.RcodeSuccess, m.Rcode)
			assert.Equal(t, tt.want, lines(m.Answer))
			assert.Equal(t, tt.extra, lines(m.Extra))
			assert.Equal(t, q.Question, m.Question)
			assert.Equal(t, q.Id, m.Id)
			assert.True(t, m.Response && m.Authoritative && m.RecursionAvailable)
		})
	}
}

func TestAnswer_AliasComesBeforeWhatItLeadsTo(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	for range 20 {
		m := NewDNS(d).answer(new(dns.Msg).SetQuestion("alias.default.svc.cluster.local.", dns.TypeA))
		require.Len(t, m.Answer, 2)
		require.IsType(t, &dns.CNAME{}, m.Answer[0], "resolvers read in order")
	}
}

func TestAnswer_AliasOfItselfEnds(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	m := NewDNS(d).answer(new(dns.Msg).SetQuestion("loop.default.svc.cluster.local.", dns.TypeA))
	assert.Equal(t, dns.RcodeSuccess, m.Rcode)
	assert.Len(t, m.Answer, maxAliases)
}

func TestAnswer_SpreadsOverEndpoints(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	first := map[string]bool{}
	for range 200 {
		first[NewDNS(d).answer(new(dns.Msg).SetQuestion("db.default.svc.cluster.local.", dns.TypeA)).Answer[0].String()] = true
	}
	assert.Len(t, first, 2, "clients take the first")
}

func TestAnswer_NoSuchName(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	tests := []struct{ name, ask string }{
		{name: "service", ask: "api.default.svc.cluster.local."},
		{name: "namespace", ask: "web.prod.svc.cluster.local."},
		{name: "beyond the cluster", ask: "example.org."},
		{name: "search domain behind a name from outside", ask: "example.org.default.svc.cluster.local."},
		{name: "end of the zone's name", ask: "mycluster.local."},
		{name: "the zone", ask: "cluster.local."},
		{name: "root", ask: "."},
		{name: "neither service nor pod", ask: "web.default.node.cluster.local."},
		{name: "service without namespace", ask: "web.svc.cluster.local."},
		{name: "host of a service that is not headless", ask: "pod-0.web.default.svc.cluster.local."},
		{name: "host that there is not", ask: "pod-1.db.default.svc.cluster.local."},
		{name: "host that is not ready", ask: "10-244-3-7.db.default.svc.cluster.local."},
		{name: "host by address that has a name", ask: "10-244-1-5.db.default.svc.cluster.local."},
		{name: "host of an external name", ask: "pod-0.outer.default.svc.cluster.local."},
		{name: "port that there is not", ask: "_grpc._tcp.web.default.svc.cluster.local."},
		{name: "port by another protocol", ask: "_http._udp.web.default.svc.cluster.local."},
		{name: "port without underscores", ask: "xhttp.xtcp.web.default.svc.cluster.local."},
		{name: "port of an endpoint", ask: "_http._tcp.pod-0.web.default.svc.cluster.local."},
		{name: "pod that is no address", ask: "web.default.pod.cluster.local."},
		{name: "pod by IPv6 address", ask: "::1.default.pod.cluster.local."},
		{name: "pod by IPv4 address in IPv6", ask: "::ffff:1-2-3-4.default.pod.cluster.local."},
		{name: "pod without namespace", ask: "10-244-1-5.pod.cluster.local."},
		{name: "dot inside a label", ask: `web\.default.svc.cluster.local.`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := NewDNS(d).answer(new(dns.Msg).SetQuestion(tt.ask, dns.TypeA))
			assert.Equal(t, "NXDOMAIN", dns.RcodeToString[m.Rcode])
			assert.Empty(t, m.Answer)
		})
	}
}

func TestAnswer_WantsOneQuestion(t *testing.T) {
	t.Parallel()
	d, _ := newDirectory(t, world()...)
	none, two := new(dns.Msg), new(dns.Msg).SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	for _, q := range []*dns.Msg{none, two} {
		m := NewDNS(d).answer(q)
		assert.Equal(t, "FORMERR", dns.RcodeToString[m.Rcode])
		assert.Empty(t, m.Answer)
	}
}

// loopback is an address of this machine that hardly anybody else has.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}

// startDNS serves names until the test ends and returns the address.
func startDNS(t *testing.T, objects ...runtime.Object) string {
	t.Helper()
	d, _ := newDirectory(t, objects...)
	pc, err := net.ListenPacket("udp4", net.JoinHostPort(loopback(), "0"))
	require.NoError(t, err)
	addr := pc.LocalAddr().String()
	ln, err := net.Listen("tcp4", addr)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewDNS(d).serve(ctx, pc, ln) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	return addr
}

func TestDNS_AnswersFitTheirTransport(t *testing.T) {
	t.Parallel()
	const endpoints = 100
	addr := startDNS(t, many(), manyEndpoints(endpoints))
	tests := []struct {
		name      string
		network   string
		edns      uint16
		wantSize  int // at most
		truncated bool
	}{
		{name: "UDP", network: "udp", wantSize: dns.MinMsgSize, truncated: true},
		{name: "UDP with EDNS", network: "udp", edns: 1232, wantSize: 1232, truncated: true},
		{name: "UDP with EDNS that says less than all must take", network: "udp", edns: 100, wantSize: dns.MinMsgSize, truncated: true},
		{name: "UDP with EDNS and room", network: "udp", edns: 4096, wantSize: 4096},
		{name: "TCP", network: "tcp", wantSize: dns.MaxMsgSize},
		{name: "TCP with EDNS", network: "tcp", edns: 512, wantSize: dns.MaxMsgSize},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			q := new(dns.Msg).SetQuestion("many.default.svc.cluster.local.", dns.TypeA)
			if tt.edns != 0 {
				q.SetEdns0(tt.edns, false)
			}
			m, _, err := (&dns.Client{Net: tt.network, UDPSize: dns.MaxMsgSize, Timeout: kubetest.Patience}).ExchangeContext(t.Context(), q, addr)
			require.NoError(t, err)
			assert.Equal(t, tt.truncated, m.Truncated)
			assert.Equal(t, tt.edns != 0, m.IsEdns0() != nil, "EDNS is answered with EDNS")
			m.Compress = true
			assert.LessOrEqual(t, m.Len(), tt.wantSize)
			assert.Equal(t, !tt.truncated, len(m.Answer) == endpoints, "%d answers", len(m.Answer))
			assert.NotEmpty(t, m.Answer)
		})
	}
}

func TestDNS_AddressInUse(t *testing.T) {
	t.Parallel()
	addr := startDNS(t)
	d, _ := newDirectory(t)
	require.ErrorContains(t, NewDNS(d).Run(t.Context(), addr), "listen for DNS: ")

	// Only TCP is taken: UDP is given back.
	ln, err := net.Listen("tcp4", net.JoinHostPort(loopback(), "0"))
	require.NoError(t, err)
	defer ln.Close()
	require.ErrorContains(t, NewDNS(d).Run(t.Context(), ln.Addr().String()), "listen for DNS: ")
	pc, err := net.ListenPacket("udp4", ln.Addr().String())
	require.NoError(t, err)
	pc.Close()
}

// recorder is a client that packs what it gets, as the network would.
type recorder struct {
	dns.ResponseWriter
	remote net.Addr
	packed []byte
	err    error
}

func (r *recorder) RemoteAddr() net.Addr { return r.remote }

func (r *recorder) WriteMsg(m *dns.Msg) error {
	r.packed, r.err = m.Pack()
	return r.err
}

func FuzzServeDNS(f *testing.F) {
	pack := func(name string, kind, edns uint16) {
		q := new(dns.Msg).SetQuestion(name, kind)
		if edns != 0 {
			q.SetEdns0(edns, true)
		}
		raw, err := q.Pack()
		require.NoError(f, err)
		f.Add(raw)
	}
	pack("many.default.svc.cluster.local.", dns.TypeA, 0)
	pack("many.default.svc.cluster.local.", dns.TypeANY, 700)
	pack("_sql._tcp.db.default.svc.cluster.local.", dns.TypeSRV, 0)
	pack("alias-of-alias.default.svc.cluster.local.", dns.TypeA, 0)
	pack("loop.default.svc.cluster.local.", dns.TypeAAAA, 1)
	pack("::1.default.pod.cluster.local.", dns.TypeA, 0)
	pack(`a\.b\000.default.svc.cluster.local.`, dns.TypeTXT, 65535)
	f.Add([]byte{})
	server := NewDNS(worldDirectory(f))
	f.Fuzz(func(t *testing.T, raw []byte) {
		q := new(dns.Msg)
		if q.Unpack(raw) != nil {
			return
		}
		room := dns.MinMsgSize
		if opt := q.IsEdns0(); opt != nil {
			room = max(room, int(opt.UDPSize()))
		}
		for _, remote := range []net.Addr{&net.UDPAddr{}, &net.TCPAddr{}} {
			r := &recorder{remote: remote}
			server.ServeDNS(r, q)
			require.NoError(t, r.err)
			m := new(dns.Msg)
			require.NoError(t, m.Unpack(r.packed))
			assert.Equal(t, q.Id, m.Id)
			for _, rr := range m.Answer {
				if a, ok := rr.(*dns.A); ok {
					assert.False(t, a.A.IsUnspecified(), "%s", rr)
				}
			}
			if remote.Network() == "udp" {
				assert.LessOrEqual(t, len(r.packed), room)
			}
		}
	})
}

// worldDirectory fills a directory without informers, which a fuzzing process would wait for in vain.
func worldDirectory(tb testing.TB) *Directory {
	tb.Helper()
	d, err := NewDirectory(nil)
	require.NoError(tb, err)
	for _, o := range append(world(), manyEndpoints(60)) {
		indexer := d.factory.Discovery().V1().EndpointSlices().Informer().GetIndexer()
		if _, ok := o.(*corev1.Service); ok {
			indexer = d.factory.Core().V1().Services().Informer().GetIndexer()
		}
		require.NoError(tb, indexer.Add(o))
	}
	return d
}
