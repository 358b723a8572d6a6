package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
	"fairlead.dev/pkg/golden"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// documentedLimits are the limits that Oracle documents. It raises the number of sets on request.
var documentedLimits = Limits{Sets: 16, Conditions: 200}

// world is the input of a golden test.
type world struct {
	Listeners []worldListener       `json:"listeners"`
	Routes    []gatewayv1.HTTPRoute `json:"routes"`
	Missing   []string              `json:"missing,omitempty"` // Services that do not exist
	Limits    map[string]int        `json:"limits,omitempty"`
	Names     map[string]string     `json:"names,omitempty"`
	Foreign   []string              `json:"foreign,omitempty"`
	Refused   []string              `json:"refused,omitempty"` // routes whose first rule an earlier step refused
}

type worldListener struct {
	Name     string   `json:"name"`
	Hostname string   `json:"hostname,omitempty"`
	Port     int32    `json:"port"`
	TLS      bool     `json:"tls,omitempty"`
	Routes   []string `json:"routes"`
}

// outcome is the output of a golden test.
type outcome struct {
	Listeners map[string]listenerOutcome `json:"listeners"`
	Sets      []string                   `json:"sets"`
	Routes    map[string][]string        `json:"routes"` // conditions
}

type listenerOutcome struct {
	Policy   string   `json:"policy"`
	Redirect string   `json:"redirect,omitempty"`
	Rules    []string `json:"rules,omitempty"`
}

func (w *world) input() *Input {
	in := &Input{Limits: documentedLimits, Names: w.Names, Foreign: w.Foreign}
	var own policy.RouteLimits
	for name, n := range w.Limits {
		*map[string]*int{
			"sets": &in.Limits.Sets, "conditions": &in.Limits.Conditions,
			"namespaceSets": &own.BackendSets, "namespaceConditions": &own.Conditions,
		}[name] = n
	}
	in.Limits.Namespaces = map[string]policy.RouteLimits{}
	routes := map[string]*Route{}
	for i := range w.Routes {
		r := w.resolve(&w.Routes[i])
		in.Limits.Namespaces[r.Namespace] = own
		routes[r.Name] = r
		if slices.Contains(w.Refused, r.Name) {
			r.Refused = map[int]plan.Problem{0: {Reason: "HostConflict", Message: "another namespace owns the host"}}
		}
	}
	for _, l := range w.Listeners {
		listener := Listener{
			Gateway: types.NamespacedName{Namespace: "infra", Name: "public"}, Name: l.Name, Hostname: l.Hostname, Port: l.Port, TLS: l.TLS,
		}
		for _, name := range l.Routes {
			listener.Routes = append(listener.Routes, routes[name])
		}
		in.Listeners = append(in.Listeners, listener)
	}
	return in
}

// resolve returns a route with those of its backendRefs that are not missing.
func (w *world) resolve(from *gatewayv1.HTTPRoute) *Route {
	r := &Route{HTTPRoute: from}
	for _, rule := range from.Spec.Rules {
		var members []Member
		for _, ref := range rule.BackendRefs {
			if slices.Contains(w.Missing, string(ref.Name)) {
				continue
			}
			members = append(members, Member{
				Backend: Backend{
					Kind:      string(ptr.Deref(ref.Kind, "Service")),
					Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(from.Namespace))), Name: string(ref.Name),
					Port: ptr.Deref(ref.Port, 80),
				},
				Weight: ptr.Deref(ref.Weight, 1),
			})
		}
		r.Members = append(r.Members, members)
	}
	return r
}

func TestBuild(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata", func(t *testing.T, w world) outcome {
		in := w.input()
		d := Build(in)
		assertValid(t, in, d)
		o := outcome{Listeners: map[string]listenerOutcome{}, Routes: map[string][]string{}}
		for _, p := range d.Policies {
			l := listenerOutcome{Policy: p.Name}
			if p.Redirect != nil {
				l.Redirect = fmt.Sprintf("%d to port %d", p.Redirect.Code, p.Redirect.Port)
			}
			for _, r := range p.Rules {
				l.Rules = append(l.Rules, fmt.Sprintf("%s: %s: %s", r.Name, r.Set, r.Condition))
			}
			o.Listeners[p.Listener] = l
		}
		for _, s := range d.Sets {
			o.Sets = append(o.Sets, strings.TrimSpace(s.Name+": "+strings.TrimPrefix(s.Key, "set")))
		}
		for i := range w.Routes {
			o.Routes[w.Routes[i].Name] = conditions(in, d, &w.Routes[i])
		}
		return o
	})
}

// conditions returns the conditions of a route as text.
func conditions(in *Input, d *Desired, route *gatewayv1.HTTPRoute) []string {
	var listeners []*Listener
	for i := range in.Listeners {
		l := &in.Listeners[i]
		if slices.ContainsFunc(l.Routes, func(r *Route) bool { return r.HTTPRoute == route }) {
			listeners = append(listeners, l)
		}
	}
	a := AcceptRoute(&Route{HTTPRoute: route}, listeners, d.Problems)
	all := []string{fmt.Sprintf("Accepted=%v/%s: %s", a.Accepted, a.Reason, a.Message)}
	if a.Dropped != "" {
		all = append(all, "PartiallyInvalid=true/UnsupportedValue: "+a.Dropped)
	}
	return all
}

// assertValid checks what must hold for every result.
func assertValid(t *testing.T, in *Input, d *Desired) {
	t.Helper()
	sets := map[string]bool{}
	for _, s := range d.Sets {
		require.Regexp(t, `^[A-Za-z0-9_-]{1,32}$`, s.Name)
		require.False(t, sets[s.Name], "two sets with the name %s", s.Name)
		sets[s.Name] = true
	}
	require.LessOrEqual(t, len(d.Sets)+len(in.Foreign), max(in.Limits.Sets, len(in.Foreign)+1))
	for _, p := range d.Policies {
		require.Regexp(t, `^[A-Za-z_][A-Za-z0-9_]{0,31}$`, p.Name)
		names, total := map[string]bool{}, 0
		for _, r := range p.Rules {
			require.Regexp(t, `^[A-Za-z_][A-Za-z0-9_]{0,31}$`, r.Name)
			require.False(t, names[r.Name], "two rules with the name %s", r.Name)
			names[r.Name] = true
			require.True(t, sets[r.Set], "rule %s names set %s", r.Name, r.Set)
			_, comparisons, err := ocilbtest.ParseCondition(r.Condition)
			require.NoError(t, err, r.Condition)
			total += comparisons
		}
		require.LessOrEqual(t, total, min(in.Limits.Conditions, ocilbtest.MaxConditions))
		require.True(t, p.Redirect == nil || len(p.Rules) == 0, "a redirect hides rules")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	service := func(namespace, name string, port int32) Member {
		return Member{Backend: Backend{Kind: "Service", Namespace: namespace, Name: name, Port: port}, Weight: 1}
	}
	same := newSet([]Member{service("team", "chat", 80)})
	for _, other := range []Member{
		service("team", "chat", 81), service("team-chat", "80", 80), service("te", "am-chat", 80),
		{Backend: Backend{Kind: "InferencePool", Namespace: "team", Name: "chat", Port: 80}, Weight: 1},
	} {
		s := newSet([]Member{other})
		assert.NotEqual(t, same.Name, s.Name)
		assert.NotEqual(t, same.Key, s.Key)
	}
	assert.Equal(t, "team-chat-80-tt7qczq6kq", same.Name)
	long := newSet([]Member{service(strings.Repeat("n", 63), strings.Repeat("s", 63), 65535)})
	assert.Len(t, long.Name, maxName)

	gateway := types.NamespacedName{Namespace: "infra", Name: strings.Repeat("g.", 100)}
	assert.NotEqual(t, PolicyName(gateway, "http"), PolicyName(gateway, "https"))
	assert.LessOrEqual(t, len(PolicyName(gateway, strings.Repeat("l", 200))), maxName)
	assert.LessOrEqual(t, len(ruleName(199, gateway)), maxName)
}

// Messages are bounded and valid text, whatever a route contains.
func TestMessagesAreBounded(t *testing.T) {
	t.Parallel()
	r := &Route{HTTPRoute: &gatewayv1.HTTPRoute{}}
	for range 16 {
		var rule gatewayv1.HTTPRouteRule
		for range 64 {
			h := gatewayv1.HTTPHeaderMatch{Name: gatewayv1.HTTPHeaderName(strings.Repeat("é", 128)), Value: strings.Repeat("é", 2048)}
			rule.Matches = append(rule.Matches, gatewayv1.HTTPRouteMatch{Headers: []gatewayv1.HTTPHeaderMatch{h}})
		}
		r.Spec.Rules = append(r.Spec.Rules, rule)
	}
	l := Listener{Name: "http", Port: 80, Routes: []*Route{r}}
	d := Build(&Input{Listeners: []Listener{l}, Limits: documentedLimits})
	require.Len(t, d.Problems, 16)
	a := AcceptRoute(r, []*Listener{&l}, d.Problems)
	assert.False(t, a.Accepted)
	for _, text := range []string{a.Message, d.Problems[0].Message} {
		assert.LessOrEqual(t, len(text), maxMessage)
		assert.True(t, utf8.ValidString(text))
	}
	assert.Equal(t, "a", truncateText("aé", 2))
}

func TestSetsOfTheSameProportionAreEqual(t *testing.T) {
	t.Parallel()
	member := func(name string, weight int32) Member {
		return Member{Backend: Backend{Kind: "Service", Namespace: "team", Name: name, Port: 80}, Weight: weight}
	}
	want := newSet([]Member{member("a", 1), member("b", 3)})
	assert.Equal(t, []Member{member("a", 1), member("b", 3)}, want.Members)
	for _, members := range [][]Member{
		{member("b", 30), member("a", 10)},
		{member("b", 3), member("a", 1), member("c", 0)},
		{member("b", 1), member("a", 1), member("b", 2)},
		{member("b", 750_000), member("a", 250_000)},
	} {
		assert.Equal(t, want, newSet(members))
	}
	assert.NotEqual(t, want.Key, newSet([]Member{member("a", 3), member("b", 1)}).Key)
	assert.Equal(t, newSet(nil), newSet([]Member{member("a", 0)}))
}

func TestCheckBackends(t *testing.T) {
	t.Parallel()
	set := func(names ...string) Set {
		var members []Member
		for _, name := range names {
			members = append(members, Member{Backend: Backend{Name: name}, Weight: 1})
		}
		return Set{Name: strings.Join(names, "+"), Members: members}
	}
	d := &Desired{Sets: []Set{set(), set("a"), set("b", "c"), set("d")}}
	limits := plan.Limits{PerSet: 10, Total: 20}
	counts := func(a, b, c, d int) map[Backend]int {
		return map[Backend]int{{Name: "a"}: a, {Name: "b"}: b, {Name: "c"}: c, {Name: "d"}: d}
	}
	assert.Empty(t, d.CheckBackends(counts(10, 4, 4, 2), limits, 0))
	assert.Empty(t, d.CheckBackends(counts(5, 2, 2, 2), limits, 9))
	capacity := func(message string) plan.Problem { return plan.Problem{Reason: ReasonCapacity, Message: message} }
	assert.Equal(t, map[string]plan.Problem{
		"d": capacity("3 endpoints need a backend, and sets of older routes leave 2 of the load balancer"),
	}, d.CheckBackends(counts(10, 4, 4, 3), limits, 0))
	assert.Equal(t, map[string]plan.Problem{
		"a": capacity("11 endpoints need a backend, the limit of a backend set is 10"),
		"d": capacity("3 endpoints need a backend, and sets of older routes leave 2 of the load balancer"),
	}, d.CheckBackends(counts(11, 4, 4, 3), limits, 0))
	assert.Equal(t, map[string]plan.Problem{
		"b+c": capacity("8 endpoints need a backend, and sets of older routes leave 6 of the load balancer"),
		"d":   capacity("2 endpoints need a backend, and sets of older routes leave 0 of the load balancer"),
	}, d.CheckBackends(counts(10, 4, 4, 2), limits, 4))
	assert.Len(t, d.CheckBackends(counts(1, 1, 0, 1), limits, 30), 3)
}

// TestFallback sends requests without a backend to the responder: the default of the listeners, and the set of rules without backends.
func TestFallback(t *testing.T) {
	t.Parallel()
	none := Backend{Kind: "Service", Namespace: "fairlead", Name: "responder", Port: 404}
	empty := Backend{Kind: "Service", Namespace: "fairlead", Name: "responder", Port: 500}
	in := &Input{
		Limits: documentedLimits, Fallback: &Fallback{NotFound: none, NoBackends: empty}, Foreign: []string{defaultSet},
		Listeners: []Listener{
			{
				Name: "http", Port: 80,
				Routes: []*Route{{HTTPRoute: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "chat"}}}},
			},
		},
	}
	d := Build(in)
	require.Len(t, d.Sets, 2)
	assert.Equal(t, []Member{{Backend: empty, Weight: 1}}, d.Sets[0].Members)
	assert.Equal(t, EmptySet, d.Sets[0].Name)
	assert.Equal(t, []Member{{Backend: none, Weight: 1}}, d.Sets[1].Members)
	assert.NotEqual(t, defaultSet, d.Sets[1].Name, "others have a set with this name")
	assert.Equal(t, d.Sets[1].Name, d.Default)
	assert.Equal(t, EmptySet, d.Policies[0].Rules[0].Set, "the rule has no backend")

	in.Names = map[string]string{DefaultKey: "models-default", EmptyKey: "empty"}
	d = Build(in)
	assert.Equal(t, "models-default", d.Default)
	assert.Equal(t, "empty", d.Policies[0].Rules[0].Set)

	in.Fallback, in.Names = nil, nil
	d = Build(in)
	require.Len(t, d.Sets, 1)
	assert.Empty(t, d.Sets[0].Members)
	assert.Equal(t, EmptySet, d.Default)
}
