package routing

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/deploy/emulators/ocilb/ocilbtest"
)

// This file has an evaluator of the Gateway API: which rule serves a request, directly from the routes. It shares no code with the
// package, nor with pkg/gatewayapi.

// rank is the precedence of a match: of two, the one with the greater rank wins, compared from the left.
type rank []int64

func (r rank) above(other rank) bool { return slices.Compare(r, other) > 0 }

// oracle returns the names of the backends of the rule that serves a request on a listener, false if none does.
func oracle(l *Listener, r *http.Request) (string, bool) {
	host := strings.ToLower(r.Host)
	if name, port, found := strings.Cut(host, ":"); found && port == fmt.Sprint(l.Port) {
		host = name
	}
	if !covers(l.Hostname, host) {
		return "", false
	}
	var best rank
	var backends string
	for _, route := range l.Routes {
		for ruleIndex, rule := range route.Spec.Rules {
			for matchIndex := range rule.Matches {
				for _, hostname := range hostnamesOf(route) {
					if !covers(hostname, host) || !satisfies(&rule.Matches[matchIndex], r) {
						continue
					}
					if own := rankOf(narrower(hostname, l.Hostname), &rule.Matches[matchIndex], route, ruleIndex,
						matchIndex); best == nil || own.above(best) {
						best, backends = own, describeRule(route, ruleIndex)
					}
				}
			}
		}
	}
	return backends, best != nil
}

func hostnamesOf(r *Route) []string {
	if len(r.Spec.Hostnames) == 0 {
		return []string{""}
	}
	var all []string
	for _, h := range r.Spec.Hostnames {
		all = append(all, strings.ToLower(string(h)))
	}
	return all
}

// covers reports whether a hostname covers a host.
func covers(hostname, host string) bool {
	if domain, wildcard := strings.CutPrefix(hostname, "*"); wildcard {
		return strings.HasSuffix(host, domain) && len(host) > len(domain)
	}
	return hostname == "" || hostname == host
}

// narrower returns the narrower of two hostnames that cover a common host.
func narrower(a, b string) string {
	if a == "" || strings.HasPrefix(a, "*") && (b != "" && !strings.HasPrefix(b, "*") || len(b) > len(a)) {
		return b
	}
	return a
}

func describeRule(r *Route, index int) string {
	var names []string
	for _, m := range r.Members[index] {
		names = append(names, m.Name)
	}
	return strings.Join(names, "+")
}

func rankOf(hostname string, m *gatewayv1.HTTPRouteMatch, r *Route, rule, match int) rank {
	exactHost, kind := 1, int64(1)
	if strings.HasPrefix(hostname, "*") || hostname == "" {
		exactHost = 0
	}
	length := len(strings.TrimSuffix(*m.Path.Value, "/"))
	switch *m.Path.Type {
	case gatewayv1.PathMatchExact:
		kind, length = 2, len(*m.Path.Value)
	case gatewayv1.PathMatchRegularExpression:
		kind, length = 0, len(*m.Path.Value)
	}
	return rank{
		int64(exactHost), int64(len(hostname)), kind, int64(length), int64(len(m.Headers)), int64(len(m.QueryParams)),
		-r.CreationTimestamp.Unix(), -int64(r.Name[0]), int64(-rule), int64(-match),
	}
}

// satisfies reports whether a request meets a match.
func satisfies(m *gatewayv1.HTTPRouteMatch, r *http.Request) bool {
	want, path := *m.Path.Value, r.URL.Path
	switch *m.Path.Type {
	case gatewayv1.PathMatchExact:
		if path != want {
			return false
		}
	case gatewayv1.PathMatchPathPrefix:
		elements, prefix := strings.Split(path, "/"), strings.Split(strings.TrimSuffix(want, "/"), "/")
		if len(elements) < len(prefix) || !slices.Equal(elements[:len(prefix)], prefix) {
			return false
		}
	case gatewayv1.PathMatchRegularExpression:
		if !regexp.MustCompile(want).MatchString(path) {
			return false
		}
	}
	seen := map[string]bool{}
	for _, h := range m.Headers {
		name := http.CanonicalHeaderKey(string(h.Name))
		value := r.Header.Get(name)
		matches := value == h.Value
		if ptr.Deref(h.Type, gatewayv1.HeaderMatchExact) == gatewayv1.HeaderMatchRegularExpression {
			matches = regexp.MustCompile(h.Value).MatchString(value)
		}
		if !seen[name] && (len(r.Header.Values(name)) == 0 || !matches) {
			return false
		}
		seen[name] = true
	}
	parameters := map[string]bool{}
	for _, q := range m.QueryParams {
		name := string(q.Name)
		if !parameters[name] && (!r.URL.Query().Has(name) || r.URL.Query().Get(name) != q.Value) {
			return false
		}
		parameters[name] = true
	}
	return true
}

// served returns what the emulator does with a request: the backends of the set of the first rule whose condition it meets.
func served(d *Desired, parsed map[string]func(*http.Request) bool, listener int, r *http.Request) (string, bool) {
	for _, rule := range d.Policies[listener].Rules {
		if !parsed[rule.Condition](r) {
			continue
		}
		i := slices.IndexFunc(d.Sets, func(s Set) bool { return s.Name == rule.Set })
		var names []string
		for _, m := range d.Sets[i].Members {
			names = append(names, m.Name)
		}
		return strings.Join(names, "+"), true
	}
	return "", false
}

// chooser chooses from few values, so that routes and requests meet.
type chooser struct{ *rand.Rand }

func (c chooser) from(values ...string) string { return values[c.IntN(len(values))] }

func (c chooser) hostname() string {
	return c.from("a.example.com", "b.example.com", "A.b.example.com", "*.example.com", "*.b.example.com", "*.com", "example.com")
}

func (c chooser) path() string {
	var elements []string
	for range c.IntN(3) {
		elements = append(elements, c.from("a", "a", "b", "ab", "A"))
	}
	return "/" + strings.Join(elements, "/") + c.from("", "", "/")
}

func (c chooser) match() gatewayv1.HTTPRouteMatch {
	m := gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{
		Type:  ptr.To(gatewayv1.PathMatchType(c.from("Exact", "PathPrefix", "PathPrefix", "RegularExpression"))),
		Value: ptr.To(strings.ReplaceAll(c.path(), "//", "/")),
	}}
	if *m.Path.Type == gatewayv1.PathMatchRegularExpression {
		*m.Path.Value = c.from("^/a.*", "^/(a)$", ".*/b$", "^/a/(.*)$")
	}
	for range c.IntN(2) * c.IntN(4) {
		h := gatewayv1.HTTPHeaderMatch{
			Name: gatewayv1.HTTPHeaderName(c.from("x-team", "X-Team", "x-tier")), Value: c.from("red", "Red", "blue (dark)"),
		}
		if c.IntN(4) == 0 {
			h.Type, h.Value = ptr.To(gatewayv1.HeaderMatchRegularExpression), c.from("^re.*", ".*d$", "^Red$", "^.*\\)$")
		}
		m.Headers = append(m.Headers, h)
	}
	for range c.IntN(2) * c.IntN(3) {
		m.QueryParams = append(m.QueryParams,
			gatewayv1.HTTPQueryParamMatch{Name: gatewayv1.HTTPHeaderName(c.from("k", "K", "l")), Value: c.from("1", "2")})
	}
	return m
}

// routes returns routes with rules whose backends have their name and index. Names differ in their first letter.
func (c chooser) routes() []*Route {
	var all []*Route
	for i := range 1 + c.IntN(4) {
		name := string(rune('a' + i))
		born := time.Date(2026, 11, 1, 12, 0, c.IntN(3), 0, time.UTC)
		r := &Route{HTTPRoute: &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, CreationTimestamp: metav1.NewTime(born),
		}}}
		for range c.IntN(3) {
			r.Spec.Hostnames = append(r.Spec.Hostnames, gatewayv1.Hostname(c.hostname()))
		}
		for j := range 1 + c.IntN(3) {
			var rule gatewayv1.HTTPRouteRule
			for range 1 + c.IntN(2) {
				rule.Matches = append(rule.Matches, c.match())
			}
			r.Spec.Rules = append(r.Spec.Rules, rule)
			r.Members = append(r.Members,
				[]Member{{Backend: Backend{Kind: "Service", Namespace: "team", Name: fmt.Sprintf("%s%d", name, j), Port: 80}, Weight: 1}})
		}
		all = append(all, r)
	}
	return all
}

func (c chooser) request(port int32) *http.Request {
	r := &http.Request{Method: http.MethodGet, Header: http.Header{}, URL: &url.URL{Path: c.path()}}
	r.Host = c.from("a.example.com", "b.example.com", "a.b.example.com", "c.b.Example.com", "example.com", "x.org", "b.com",
		"xb.example.com") + c.from("", fmt.Sprintf(":%d", port))
	for _, name := range []string{"X-Team", "X-Tier"} {
		if c.IntN(3) > 0 {
			r.Header.Set(name, c.from("red", "Red", "blue (dark)"))
		}
	}
	values := url.Values{}
	for _, name := range []string{"k", "K", "l"} {
		if c.IntN(3) > 0 {
			values.Set(name, c.from("1", "2"))
		}
	}
	r.URL.RawQuery = values.Encode()
	return r
}

// The load balancer sends every request to the rule that the Gateway API chooses.
func TestPrecedenceAgainstOracle(t *testing.T) {
	t.Parallel()
	const worlds, requests = 200, 60
	some, none := 0, 0
	for seed := range uint64(worlds) {
		c := chooser{rand.New(rand.NewPCG(seed, 7))}
		in := &Input{Limits: Limits{Sets: 100, Conditions: 10_000}}
		routes := c.routes()
		for i, hostname := range []string{"", "*.example.com", "a.example.com"} {
			in.Listeners = append(in.Listeners, Listener{
				Gateway: types.NamespacedName{Namespace: "infra", Name: "public"}, Name: fmt.Sprint("l", i), Hostname: hostname,
				Port: int32(80 + i), Routes: routes,
			})
		}
		d := Build(in)
		require.Empty(t, d.Problems, "seed %d", seed)
		parsed := map[string]func(*http.Request) bool{}
		for _, p := range d.Policies {
			for _, rule := range p.Rules {
				match, _, err := ocilbtest.ParseCondition(rule.Condition)
				require.NoError(t, err, rule.Condition)
				parsed[rule.Condition] = match
			}
		}
		for range requests {
			i := c.IntN(len(in.Listeners))
			r := c.request(in.Listeners[i].Port)
			want, found := oracle(&in.Listeners[i], r)
			got, ok := served(d, parsed, i, r)
			require.Equal(t, found, ok, "seed %d: %s%s on listener %q", seed, r.Host, r.URL, in.Listeners[i].Hostname)
			require.Equal(t, want, got, "seed %d: %s%s %v on listener %q: %v", seed, r.Host, r.URL, r.Header, in.Listeners[i].Hostname,
				d.Policies[i].Rules)
			if found {
				some++
			} else {
				none++
			}
		}
	}
	assert.Greater(t, some, worlds*requests/10, "requests that a rule serves")
	assert.Greater(t, none, worlds*requests/10, "requests that no rule serves")
}

// Every value is either refused, or the condition matches exactly the requests that the match matches.
func FuzzCondition(f *testing.F) {
	f.Add("a.example.com", "/a", "x-team", "red", "k", "1")
	f.Add("*.example.com", "/a/", "x'", "') , http.request.url.path sw ('/", "'", "')")
	f.Add("a.example.com'", "/(i '/a')", "x", "a\\'b", "k\\", "é")
	f.Add("", "/%27", "x", "a\nb", "k", "a b&c=d")
	f.Add("a", "/'), any(http.request.url.path sw '/", "x", strings.Repeat("a", 5000), "k", "\x00")
	f.Add("a", "/a)b(c,d]", "x", "(i 'x')", "k", "%61")
	// One hostile value each, which would make a condition that can be parsed.
	f.Add("a.b'), http.request.url.path sw ('/", "/a", "x", "y", "k", "1")
	f.Add("a", "/a', http.request.url.path sw '/", "x", "y", "k", "1")
	f.Add("a", "/a", "x')] eq 'y', http.request.headers[(i 'z", "y", "k", "1")
	f.Add("a", "/a", "x", "y', http.request.url.path sw '/", "k", "1")
	f.Add("a", "/a", "x", "y", "k'] eq '1', http.request.url.query['l", "1")
	f.Add("a", "/a", "x", "y", "k", "1', http.request.url.path sw '/")
	f.Add("a:80", "/a", "x", "y", "k", "1")
	f.Fuzz(func(t *testing.T, hostname, path, header, value, parameter, parameterValue string) {
		hostname = strings.ToLower(hostname)
		m := gatewayv1.HTTPRouteMatch{
			Path: &gatewayv1.HTTPPathMatch{
				Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: ptr.To("/" + strings.TrimPrefix(path, "/")),
			},
			Headers:     []gatewayv1.HTTPHeaderMatch{{Name: gatewayv1.HTTPHeaderName(header), Value: value}},
			QueryParams: []gatewayv1.HTTPQueryParamMatch{{Name: gatewayv1.HTTPHeaderName(parameter), Value: parameterValue}},
		}
		route := &Route{HTTPRoute: &gatewayv1.HTTPRoute{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "r"},
			Spec: gatewayv1.HTTPRouteSpec{
				Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(hostname)},
				Rules:     []gatewayv1.HTTPRouteRule{{Matches: []gatewayv1.HTTPRouteMatch{m}}},
			},
		}}
		route.Members = [][]Member{{{Backend: Backend{Kind: "Service", Namespace: "team", Name: "r", Port: 80}, Weight: 1}}}
		in := &Input{Limits: documentedLimits, Listeners: []Listener{{Name: "http", Port: 80, Routes: []*Route{route}}}}
		d := Build(in)
		assertValid(t, in, d)
		if len(d.Problems) > 0 {
			require.Empty(t, d.Policies[0].Rules, "a rule that is reported is not programmed")
			return
		}
		require.Len(t, d.Policies[0].Rules, 1)
		match, comparisons, err := ocilbtest.ParseCondition(d.Policies[0].Rules[0].Condition)
		require.NoError(t, err)
		expected := 4 // both hosts, header and parameter
		if hostname == "" {
			expected -= 2
		}
		if *m.Path.Value != "/" {
			expected += 2
		}
		require.Equal(t, expected, comparisons, "a value has become a condition: %s", d.Policies[0].Rules[0].Condition)

		host := strings.Replace(hostname, "*", "x", 1)
		for i := range 7 {
			values := url.Values{parameter: {parameterValue}}
			r := &http.Request{
				Method: http.MethodGet, Host: host, Header: http.Header{}, URL: &url.URL{Path: *m.Path.Value, RawQuery: values.Encode()},
			}
			r.Header.Set(header, value)
			switch i { // each but the first two differs in one part
			case 1:
				r.Host += ":80"
			case 2:
				r.Host = "x" + r.Host + "x"
			case 3:
				r.URL.Path = "/" + strings.Trim(r.URL.Path, "/") + "x"
			case 4:
				r.Header.Set(header, value+"x")
			case 5:
				r.URL.RawQuery = url.Values{parameter: {parameterValue + "x"}}.Encode()
			case 6:
				r.URL.Path = "/x" + r.URL.Path
			}
			_, want := oracle(&in.Listeners[0], r)
			require.Equal(t, want, match(r), "request %d: %s%s %q", i, r.Host, r.URL, r.Header)
			require.True(t, i > 1 || want, "request %d", i)
		}
	})
}

// Values that OCI conditions cannot contain, or that mean different things to different clients, are refused with the reason.
func TestLiterals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		quote    func(string) (string, error)
		accepted []string
		refused  map[string]string // reasons by values
	}{
		"value": {
			quote:    quoteLiteral,
			accepted: []string{"a", "A b", "(i x)", `"a"`, "a,b", "]", "~", strings.Repeat("a", maxLiteral)},
			refused: map[string]string{
				"": "empty", "'": "contains '\\''", "a'": "contains", `a\b`: "contains", "a\x00": "contains", "a\n": "contains",
				"a\t": "contains", "\x7f": "contains",
				"é": "contains 'é'", "\xff": "contains", strings.Repeat("a", maxLiteral+1): "the limit is 1024",
			},
		},
		"path": {
			quote:    pathLiteral,
			accepted: []string{"/", "/a:b@c", "/~user/(a)*!$&+,;=", "/A"},
			refused:  map[string]string{"/%20": "encoded", "/a b": "encoded", "/{a}": "encoded", "/it's": "contains", "/é": "contains"},
		},
		"query parameter": {
			quote:    queryLiteral,
			accepted: []string{"a", "A-b_c.d~1"},
			refused: map[string]string{
				"a b": "encoded", "a+b": "encoded", "a/b": "encoded", "%61": "encoded", "a&b": "encoded", "'": "encoded", "": "empty",
			},
		},
		"host": {
			quote:    hostLiteral,
			accepted: []string{"a.example.com", ".example.com", "xn--a.example"},
			refused:  map[string]string{"a:80": "contains ':'", "a b": "contains", "*.a": "contains", "a')": "contains", "": "empty"},
		},
	} {
		for _, value := range tt.accepted {
			got, err := tt.quote(value)
			require.NoError(t, err, "%s %q", name, value)
			assert.Contains(t, []string{"'" + value + "'", "(i '" + value + "')"}, got, name)
		}
		for value, want := range tt.refused {
			_, err := tt.quote(value)
			require.ErrorContains(t, err, want, "%s %q", name, value)
		}
	}
}

func TestParsePattern(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"^abc$":                   "eq abc",
		"^a.*":                    "sw a",
		"^a(.*)$":                 "sw a",
		"^a.*?$":                  "sw a",
		`^v1\.0.*`:                "sw v1.0",
		`^(a)(b)c$`:               "eq abc",
		".*abc$":                  "ew abc",
		"^.*abc$":                 "ew abc",
		"abc":                     "", // some implementations search, others match the whole value
		"^abc":                    "",
		"abc$":                    "",
		"abc.*":                   "",
		".*abc":                   "",
		".*abc.*":                 "",
		"^a.*b$":                  "",
		"^a+$":                    "",
		"^a|b$":                   "",
		"^(?i)abc$":               "",
		"(?m)^abc$":               "",
		"^$":                      "",
		".*":                      "",
		"":                        "",
		"^a[bc]$":                 "",
		"^a(.+)":                  "",
		"^(a":                     "",
		"^(a|b).*":                "",
		"^a(?:bc.*)":              "sw abc",
		strings.Repeat("(", 2000): "",
	} {
		operator, text, err := parsePattern(pattern)
		if want == "" {
			require.Error(t, err, pattern)
			continue
		}
		require.NoError(t, err, pattern)
		assert.Equal(t, want, operator+" "+text, pattern)
	}
}

// TestPortsOfHosts sends hosts with ports: an exact hostname covers all of them, a wildcard none and that of the listener.
func TestPortsOfHosts(t *testing.T) {
	t.Parallel()
	for hostname, want := range map[string]map[string]bool{
		"a.example.com": {
			"a.example.com": true, "A.example.com:80": true, "a.example.com:1234": true, "a.example.com.evil:80": false,
			"xa.example.com": false,
		},
		"*.example.com": {
			"a.example.com": true, "a.example.com:80": true, "a.example.com:1234": false, "example.com": false,
			"a.example.com.evil:80": false,
		},
	} {
		var c conjunction
		require.NoError(t, c.addHostname(hostname, 80))
		text, _, err := c.buildText()
		require.NoError(t, err)
		match, _, err := ocilbtest.ParseCondition(text)
		require.NoError(t, err)
		for host, covered := range want {
			assert.Equal(t, covered, match(&http.Request{Host: host, Header: http.Header{}, URL: &url.URL{Path: "/"}}), "%s: %s", hostname,
				host)
		}
	}
}
