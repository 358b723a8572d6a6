package routing

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func newRequest(target string, headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
			continue
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestMatch(t *testing.T) {
	t.Parallel()
	request := newRequest("/v1/Chat?model=a&model=b&debug=", "Host", "api.example.com", "X-Team", "Blue", "X-Team", "Red", "Cookie", "tier=gold; seen=1")
	for condition, want := range map[string]bool{
		"http.request.url.path eq '/v1/Chat'":                                true,
		"http.request.url.path = '/v1/Chat'":                                 true,
		"http.request.url.path eq '/v1/chat'":                                false,
		"http.request.url.path eq (i '/v1/chat')":                            true,
		"http.request.url.path sw '/v1/'":                                    true,
		"http.request.url.path sw '/v2/'":                                    false,
		"http.request.url.path ew (i 'CHAT')":                                true,
		"http.request.url.path cw 'C'":                                       true,
		"http.request.headers[(i 'host')] eq (i 'API.example.com')":          true,
		"http.request.headers[(i 'host')][0] ew (i '.example.com')":          true,
		"http.request.headers[(i 'x-team')] eq 'Red'":                        true,
		"http.request.headers[(i 'x-team')][0] eq 'Red'":                     false,
		"http.request.headers[(i 'x-team')] not eq 'Green'":                  true,
		"http.request.headers[(i 'x-team')] exists":                          true,
		"http.request.headers[(i 'x-none')] exists":                          false,
		"http.request.headers[(i 'x-none')] not exists":                      true,
		"http.request.headers[(i 'x-none')] eq ''":                           false,
		"http.request.url.query['model'] eq 'b'":                             true,
		"http.request.url.query['Model'] eq 'b'":                             false,
		"http.request.url.query[(i 'Model')] eq 'b'":                         true,
		"http.request.url.query['debug'] exists":                             true,
		"http.request.cookies['tier'] eq 'gold'":                             true,
		"http.request.cookies['tier'] not eq 'gold'":                         false,
		"any(http.request.url.path eq '/a', http.request.url.path sw '/v1')": true,
		"all(http.request.url.path eq '/a', http.request.url.path sw '/v1')": false,
		"all(http.request.url.path sw '/',any(http.request.url.path eq '/a', http.request.headers[(i 'host')] eq 'api.example.com'))": true,
	} {
		c, err := Parse(condition)
		require.NoError(t, err, condition)
		assert.Equal(t, want, c.Match(request), condition)
	}
}

func TestComparisons(t *testing.T) {
	t.Parallel()
	c, err := Parse("all(http.request.url.path sw '/', any(http.request.url.path eq '/a', http.request.url.path eq '/b'))")
	require.NoError(t, err)
	assert.Equal(t, 3, c.Comparisons())
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	const path = "http.request.url.path eq '/'"
	six := strings.TrimSuffix(strings.Repeat(path+", ", 6), ", ")
	for condition, want := range map[string]string{
		"":                                         `unknown attribute "" at ""`,
		"http.request.method eq 'GET'":             `unknown attribute "http.request.method"`,
		"http.request.url.path is '/'":             `unknown operator "is"`,
		"http.request.url.path eq \"/\"":           "expected a literal in single quotes",
		"http.request.url.path eq '/":              "expected the closing quote",
		"http.request.url.path eq (i '/'":          "expected )",
		"http.request.url.path not not eq '/'":     "expected an operator",
		path + " and " + path:                      "expected the end of the condition",
		"any()":                                    `unknown attribute ""`,
		"any(" + path:                              "expected , or )",
		"any " + path:                              "expected (",
		"any(" + six + ")":                         "more than 5 conditions in a group",
		"any(all(any(" + path + ")))":              "conditions are nested too deeply",
		"http.request.headers[(i 'host')] ew '.x'": "ew of several values needs the index [0]",
		"http.request.headers eq 'x'":              "expected [",
		"http.request.headers['a' eq 'x'":          "expected ]",
	} {
		_, err := Parse(condition)
		assert.ErrorContains(t, err, want, condition)
	}
}

// A condition that can be parsed can be evaluated, and has no more comparisons than the limits allow.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"any(http.request.url.path eq (i '/documents'))", "all(http.request.headers[(i 'host')][0] ew '.a', http.request.cookies['b'] not eq 'c')",
		"http.request.url.query['k'] exists", "any(all(http.request.url.path sw '/'))",
	} {
		f.Add(seed)
	}
	r := newRequest("/a?k=v", "Cookie", "b=c")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(text)
		if err != nil {
			return
		}
		c.Match(r)
		if n := c.Comparisons(); n < 1 || n > MaxTerms*MaxTerms {
			t.Errorf("%d comparisons", n)
		}
	})
}
