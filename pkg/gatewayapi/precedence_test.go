package gatewayapi

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/golden"
)

// compare compares two matches by all criteria.
func compare(a, b *RouteMatch) int {
	for _, c := range Precedence() {
		if n := c.Compare(a, b); n != 0 {
			return n
		}
	}
	return 0
}

func TestPrecedence(t *testing.T) {
	t.Parallel()
	match := func(text string) *gatewayv1.HTTPRouteMatch {
		m := golden.Decode[gatewayv1.HTTPRouteMatch](t, []byte(text))
		return &m
	}
	route := func(name string, age time.Duration) *gatewayv1.HTTPRoute {
		born := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).Add(-age)
		return &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(born)}}
	}
	old, young := route("b", time.Hour), route("a", time.Minute)
	want := []RouteMatch{
		{Hostname: "chat.example.com", Match: match("{}"), Route: young},
		{Hostname: "a.example.com", Match: match("{}"), Route: young},
		{Hostname: "*.llm.example.com", Match: match("{path: {type: Exact, value: /a}}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {type: Exact, value: /a/b}}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {type: Exact, value: /a}}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /abc}}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab/}, method: GET}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab/}, headers: [{name: x, value: y}, {name: z, value: y}]}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab}, headers: [{name: x, value: y}], queryParams: [{name: x, value: y}]}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab/}, headers: [{name: x, value: y}]}"), Route: old},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab}, headers: [{name: x, value: y}]}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {value: /ab}, queryParams: [{name: x, value: y}]}"), Route: young},
		{Hostname: "*.example.com", Match: match("{}"), Route: young, RuleIndex: 0, MatchIndex: 1},
		{Hostname: "*.example.com", Match: match("{}"), Route: young, RuleIndex: 1},
		{Hostname: "*.example.com", Match: match("{path: {type: RegularExpression, value: /very/long}}"), Route: young},
		{Hostname: "*.example.com", Match: match("{path: {type: Later, value: /very/long}}"), Route: young},
		{Match: match("{path: {type: Exact, value: /a}}"), Route: old},
	}
	for i := range want {
		assert.Zero(t, compare(&want[i], &want[i]))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		got := slices.Clone(want)
		random.Shuffle(len(got), func(i, j int) { got[i], got[j] = got[j], got[i] })
		slices.SortFunc(got, func(a, b RouteMatch) int { return compare(&a, &b) })
		assert.Equal(t, want, got)
	}
}

func TestHasPathPrefix(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, prefix string
		want         bool
	}{
		{"/a", "/", true},
		{"/a", "/a", true},
		{"/a", "/a/", true},
		{"/a/", "/a", true},
		{"/a/b", "/a/", true},
		{"/ab", "/a", false},
		{"/", "/a", false},
		{"*", "/", false},
	} {
		assert.Equal(t, tt.want, HasPathPrefix(tt.path, tt.prefix), "%s %s", tt.path, tt.prefix)
	}
}

func TestIntersectHostnames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b, want string
		none       bool
	}{
		{a: "", b: "", want: ""},
		{a: "", b: "A.example.com", want: "a.example.com"},
		{a: "", b: "*.example.com", want: "*.example.com"},
		{a: "*.Example.com", b: "a.example.com", want: "a.example.com"},
		{a: "*.example.com", b: "*.a.example.com", want: "*.a.example.com"},
		{a: "*.example.com", b: "*.example.com", want: "*.example.com"},
		{a: "*.example.com", b: "example.com", none: true},
		{a: "*.example.com", b: "*.example.org", none: true},
		{a: "a.example.com", b: "b.example.com", none: true},
	} {
		for _, pair := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			got, ok := IntersectHostnames(pair[0], pair[1])
			assert.Equal(t, !tt.none, ok, "%v", pair)
			assert.Equal(t, tt.want, got, "%v", pair)
		}
	}
}
