package pools

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"google.golang.org/grpc/metadata"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

func TestParseAuthority(t *testing.T) {
	t.Parallel()
	whole := address{namespace: "team-a", service: "epp", port: 9002}
	tests := []struct {
		name, give string
		want       address
	}{
		{name: "Envoy AI Gateway", give: "epp.team-a.svc:9002", want: whole},
		{name: "cluster domain", give: "epp.team-a.svc.cluster.local:9002", want: whole},
		{name: "fully qualified", give: "epp.team-a.svc.cluster.local.:9002", want: whole},
		{name: "Istio", give: "outbound|9002||epp.team-a.svc.cluster.local", want: whole},
		{name: "Istio, with a subset", give: "outbound|9002|v1|epp.team-a.svc.cluster.local", want: whole},
		{name: "namespace alone", give: "epp.team-a:9002", want: whole},
		{name: "no namespace", give: "epp:9002", want: address{service: "epp", port: 9002}},
		{name: "no port", give: "epp.team-a.svc", want: address{namespace: "team-a", service: "epp"}},
		{name: "IPv4", give: "127.0.0.1:9002", want: address{port: 9002}},
		{name: "IPv6", give: "[::1]:9002", want: address{port: 9002}},
		{name: "another host", give: "epp.example.com:9002", want: address{port: 9002}},
		{name: "port out of range", give: "epp.team-a.svc:90020", want: address{namespace: "team-a", service: "epp"}},
		{name: "port is not a number", give: "epp.team-a.svc:grpc", want: address{namespace: "team-a", service: "epp"}},
		{name: "inbound", give: "inbound|9002||", want: address{service: "inbound|9002||"}},
		{name: "empty"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, parseAuthority(tt.give))
		})
	}
}

func FuzzParseAuthority(f *testing.F) {
	f.Add("epp.team-a.svc:9002")
	f.Add("outbound|9002||epp.team-a.svc.cluster.local")
	f.Add("[::1]:9002")
	f.Fuzz(func(t *testing.T, text string) {
		a := parseAuthority(text)
		assert.GreaterOrEqual(t, a.port, 0)
		assert.LessOrEqual(t, a.port, 65535)
		assert.LessOrEqual(t, len(a.service)+len(a.namespace), len(text))
		if a.namespace != "" {
			assert.Equal(t, a, parseAuthority(a.service+"."+a.namespace+".svc:"+strconv.Itoa(a.port)))
		}
	})
}

// namedPool is a pool that is known by its name.
type namedPool struct {
	request.Pool

	name string
}

func memberAt(name, service string, port int) member {
	return member{pool: namedPool{name: name}, address: address{namespace: "team-a", service: service, port: port}}
}

// find returns the name of the pool of a stream.
func (f *finder) find(authority string) string {
	ctx := metadata.NewIncomingContext(context.Background(), metadata.MD{":authority": {authority}})
	p, _ := f.FindPool(ctx).(namedPool)
	return p.name
}

func TestFinder_Find(t *testing.T) {
	t.Parallel()
	s := newFinder(namedPool{name: "missing"})
	assert.Equal(t, "missing", s.find("epp-a.team-a.svc:9002"))
	s.replaceMembers([]member{memberAt("a", "epp-a", 9002), memberAt("b", "epp-b", 9002), memberAt("c", "epp-b", 9003)})
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

func TestFinder_FindByTitleAndHost(t *testing.T) {
	t.Parallel()
	s := newFinder(namedPool{name: "missing"}, 9008)
	a, b, c := memberAt("a", "epp-a", 9002), memberAt("b", "epp-b", 9002), memberAt("c", "epp-b", 9003)
	a.title, b.title, c.title = "team-a/a", "team-a/b", "team-a/c"
	s.replaceMembers([]member{a, b, c})
	assert.Equal(t, c.pool, s.FindTitle("team-a/c"))
	assert.Nil(t, s.FindTitle("team-a/d"))
	for host, want := range map[string]string{
		"epp-a.team-a.svc:9008": "a", // the port is not that of ext_proc
		"epp-a.team-a":          "a",
		"epp-b.team-a.svc:9008": "missing", // two pools have the Service
		"epp-a.team-b.svc:9008": "missing",
		"10.0.0.1:9003":         "missing", // the port of ext_proc names no pool here
		"":                      "missing",
	} {
		found, _ := s.FindHost(host).(namedPool)
		assert.Equal(t, want, found.name, host)
	}
}

func TestFinder_PoolThatIsGoneDoesNotLeaveItsStreamsToAnother(t *testing.T) {
	t.Parallel()
	s := newFinder(namedPool{name: "missing"})
	s.replaceMembers([]member{memberAt("a", "epp-a", 9002)})
	assert.Equal(t, "a", s.find("epp-a.team-a.svc:9002"))
	assert.Equal(t, "missing", s.find("epp-b.team-a.svc:9002"))
}

func BenchmarkFind(b *testing.B) {
	s := newFinder(namedPool{})
	s.replaceMembers([]member{memberAt("a", "epp-a", 9002)})
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
		request.Pool
		name string
	}
	s := newFinder(named{name: ""}, 8080)
	alone, first, second := named{name: "alone"}, named{name: "first"}, named{name: "second"}
	s.replaceMembers([]member{
		{address: address{namespace: "ns", service: "epp", port: 9002}, pool: alone},
		{address: address{namespace: "ns", service: "shared", port: 9010}, pool: first},
		{address: address{namespace: "ns", service: "shared", port: 9011}, pool: second},
	})
	for host, want := range map[string]string{
		"epp": "alone", "epp.ns": "alone", "epp.ns.svc": "alone", "epp.ns.svc.cluster.local": "alone", "epp.ns:8080": "alone", "epp.ns:9002": "alone",
		"epp.ns:9003": "", "epp.other": "", "epp.ns:80": "", "": "", "models.example.com": "", "10.0.0.1:8080": "", "10.0.0.1:9002": "", ":9002": "",
		"shared.ns": "", "shared.ns:8080": "", "shared.ns:9010": "first", "shared.ns.svc:9011": "second", "shared.ns:9012": "",
	} {
		assert.Equal(t, want, s.FindHost(host).(named).name, "host %q", host)
	}
}
