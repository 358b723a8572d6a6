package pools

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/metadata"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

func TestParseAuthority(t *testing.T) {
	t.Parallel()
	whole := Address{Namespace: "team-a", Service: "epp", Port: 9002}
	tests := []struct {
		name, give string
		want       Address
	}{
		{name: "Envoy AI Gateway", give: "epp.team-a.svc:9002", want: whole},
		{name: "cluster domain", give: "epp.team-a.svc.cluster.local:9002", want: whole},
		{name: "fully qualified", give: "epp.team-a.svc.cluster.local.:9002", want: whole},
		{name: "Istio", give: "outbound|9002||epp.team-a.svc.cluster.local", want: whole},
		{name: "Istio, with a subset", give: "outbound|9002|v1|epp.team-a.svc.cluster.local", want: whole},
		{name: "namespace alone", give: "epp.team-a:9002", want: whole},
		{name: "no namespace", give: "epp:9002", want: Address{Service: "epp", Port: 9002}},
		{name: "no port", give: "epp.team-a.svc", want: Address{Namespace: "team-a", Service: "epp"}},
		{name: "IPv4", give: "127.0.0.1:9002", want: Address{Port: 9002}},
		{name: "IPv6", give: "[::1]:9002", want: Address{Port: 9002}},
		{name: "another host", give: "epp.example.com:9002", want: Address{Port: 9002}},
		{name: "port out of range", give: "epp.team-a.svc:90020", want: Address{Namespace: "team-a", Service: "epp"}},
		{name: "port is not a number", give: "epp.team-a.svc:grpc", want: Address{Namespace: "team-a", Service: "epp"}},
		{name: "inbound", give: "inbound|9002||", want: Address{Service: "inbound|9002||"}},
		{name: "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, ParseAuthority(tt.give))
		})
	}
}

func FuzzParseAuthority(f *testing.F) {
	f.Add("epp.team-a.svc:9002")
	f.Add("outbound|9002||epp.team-a.svc.cluster.local")
	f.Add("[::1]:9002")
	f.Fuzz(func(t *testing.T, text string) {
		a := ParseAuthority(text)
		assert.GreaterOrEqual(t, a.Port, 0)
		assert.LessOrEqual(t, a.Port, 65535)
		assert.LessOrEqual(t, len(a.Service)+len(a.Namespace), len(text))
		if a.Namespace != "" {
			assert.Equal(t, a, ParseAuthority(a.Service+"."+a.Namespace+".svc:"+strconv.Itoa(a.Port)))
		}
	})
}

// namedPool is a pool that is known by its name.
type namedPool struct {
	exchange.Pool

	name string
}

func member(name, service string, port int) Member {
	return Member{Pool: namedPool{name: name}, Address: Address{Namespace: "team-a", Service: service, Port: port}}
}

// find returns the name of the pool of a stream.
func (s *Set) find(authority string) string {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{":authority": {authority}})
	p, _ := s.FindPool(ctx).(namedPool)
	return p.name
}

func TestSet_Find(t *testing.T) {
	t.Parallel()
	s := NewSet(namedPool{name: "missing"})
	assert.Equal(t, "missing", s.find("epp-a.team-a.svc:9002"))
	s.ReplaceMembers([]Member{member("a", "epp-a", 9002), member("b", "epp-b", 9002), member("c", "epp-b", 9003)})
	tests := []struct{ name, give, want string }{
		{name: "by Service", give: "epp-a.team-a.svc:9002", want: "a"},
		{name: "by Service, without the port", give: "epp-a.team-a.svc", want: "a"},
		{name: "by port of a Service", give: "epp-b.team-a.svc:9003", want: "c"},
		{name: "ambiguous without the port", give: "epp-b.team-a.svc", want: "missing"},
		{name: "without the namespace", give: "epp-b:9002", want: "b"},
		{name: "by port alone", give: "10.0.0.1:9003", want: "c"},
		{name: "ambiguous port alone", give: "10.0.0.1:9002", want: "missing"},
		{name: "another namespace", give: "epp-a.team-b.svc:9002", want: "missing"},
		{name: "another port", give: "epp-a.team-a.svc:9003", want: "missing"},
		{name: "another Service", give: "epp-d.team-a.svc:9003", want: "missing"},
		{name: "empty", give: "", want: "missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, s.find(tt.give))
		})
	}
	assert.Equal(t, namedPool{name: "missing"}, s.FindPool(context.Background()))
}

func TestSet_FindByTitleAndHost(t *testing.T) {
	t.Parallel()
	s := NewSet(namedPool{name: "missing"})
	a, b, c := member("a", "epp-a", 9002), member("b", "epp-b", 9002), member("c", "epp-b", 9003)
	a.Title, b.Title, c.Title = "team-a/a", "team-a/b", "team-a/c"
	s.ReplaceMembers([]Member{a, b, c})
	assert.Equal(t, c.Pool, s.FindTitle("team-a/c"))
	assert.Nil(t, s.FindTitle("team-a/d"))
	for host, want := range map[string]string{
		"epp-a.team-a.svc:9008": "a", // the port is not that of ext_proc
		"epp-a.team-a":          "a",
		"epp-b.team-a.svc:9008": "missing", // two pools have the Service
		"epp-a.team-b.svc:9008": "missing",
		"10.0.0.1:9003":         "missing", // the port of ext_proc names no pool here
		"":                      "missing",
	} {
		found, _ := s.FindHost(host, 9008).(namedPool)
		assert.Equal(t, want, found.name, host)
	}
}

func TestSet_PoolThatIsGoneDoesNotLeaveItsStreamsToAnother(t *testing.T) {
	t.Parallel()
	s := NewSet(namedPool{name: "missing"})
	s.ReplaceMembers([]Member{member("a", "epp-a", 9002)})
	assert.Equal(t, "a", s.find("epp-a.team-a.svc:9002"))
	assert.Equal(t, "missing", s.find("epp-b.team-a.svc:9002"))
}

func BenchmarkFind(b *testing.B) {
	s := NewSet(namedPool{})
	s.ReplaceMembers([]Member{member("a", "epp-a", 9002)})
	ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{":authority": {"epp-a.team-a.svc:9002"}})
	b.ReportAllocs()
	for b.Loop() {
		s.FindPool(ctx)
	}
}

// TestFindHost finds pools by the Host header of requests at the proxy's listener, on port 8080.
func TestFindHost(t *testing.T) {
	t.Parallel()
	type named struct {
		exchange.Pool
		name string
	}
	s := NewSet(named{name: ""})
	alone, first, second := named{name: "alone"}, named{name: "first"}, named{name: "second"}
	s.ReplaceMembers([]Member{
		{Address: Address{Namespace: "ns", Service: "epp", Port: 9002}, Pool: alone},
		{Address: Address{Namespace: "ns", Service: "shared", Port: 9010}, Pool: first},
		{Address: Address{Namespace: "ns", Service: "shared", Port: 9011}, Pool: second},
	})
	for host, want := range map[string]string{
		"epp": "alone", "epp.ns": "alone", "epp.ns.svc": "alone", "epp.ns.svc.cluster.local": "alone", "epp.ns:8080": "alone", "epp.ns:9002": "alone",
		"epp.ns:9003": "", "epp.other": "", "epp.ns:80": "", "": "", "models.example.com": "", "10.0.0.1:8080": "", "10.0.0.1:9002": "", ":9002": "",
		"shared.ns": "", "shared.ns:8080": "", "shared.ns:9010": "first", "shared.ns.svc:9011": "second", "shared.ns:9012": "",
	} {
		assert.Equal(t, want, s.FindHost(host, 8080).(named).name, "host %q", host)
	}
}
