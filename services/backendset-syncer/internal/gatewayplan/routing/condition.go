package routing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/pkg/gatewayapi"
)

// maxTerms is OCI's limit for a group of conditions. Groups are nested once.
const maxTerms = 5

// Attributes of the condition language.
const (
	path    = "http.request.url.path"
	headers = "http.request.headers"
	query   = "http.request.url.query"
)

var (
	errMethod = errors.New("method: OCI has no conditions on the method of a request")
	errHost   = errors.New("use the hostnames of the route, which match with and without a port")
)

// conjunction is a condition: all of its alternatives and all of its singles must hold.
type conjunction struct {
	alternatives [][]string // one of each must hold
	singles      []string   // comparisons
}

// buildText returns the condition, and its size. OCI limits the conditions of a policy, and does not say whether a nested group is one:
// here, it is.
func (c *conjunction) buildText() (condition string, size int, _ error) {
	var terms []string
	for _, a := range c.alternatives {
		terms = append(terms, "any("+strings.Join(a, ", ")+")")
		size += len(a) + 1
	}
	size += len(c.singles)
	switch room := maxTerms - len(terms); {
	case size == 0:
		return "any(" + path + " sw '/')", 1, nil
	case len(terms) == 1 && len(c.singles) == 0:
		return terms[0], size - 1, nil
	case len(c.singles) <= room:
		terms = append(terms, c.singles...)
	case len(c.singles) <= room*maxTerms:
		for rest := c.singles; len(rest) > 0; {
			n := min(maxTerms, len(rest))
			if n == 1 {
				terms = append(terms, rest[0])
				break
			}
			terms = append(terms, "all("+strings.Join(rest[:n], ", ")+")")
			rest = rest[n:]
			size++
		}
	default:
		return "", 0, fmt.Errorf("the match needs %d conditions, OCI has room for %d", len(terms)+len(c.singles), len(terms)+room*maxTerms)
	}
	return "all(" + strings.Join(terms, ", ") + ")", size, nil
}

// addHostname adds the condition for a hostname on a port. An empty hostname needs none. The Gateway API ignores the port of a request's
// host. The language can do so for an exact name, and not for a suffix: a wildcard matches without a port, and with that of the listener.
func (c *conjunction) addHostname(hostname string, port int32) error {
	if hostname == "" {
		return nil
	}
	const attribute = headers + "[(i 'host')]"
	domain, wildcard := strings.CutPrefix(hostname, "*.")
	if wildcard {
		hostname = "." + domain
	}
	alone, err := hostLiteral(hostname)
	if err != nil {
		return fmt.Errorf("hostname %.40q: %w", hostname, err)
	}
	withPort := hostname + ":"
	if wildcard {
		withPort += strconv.Itoa(int(port))
	}
	other, err := ignoreCase(withPort)
	if wildcard {
		c.alternatives = append(c.alternatives,
			[]string{attribute + "[0] " + endsWith + " " + alone, attribute + "[0] " + endsWith + " " + other})
	} else {
		c.alternatives = append(c.alternatives,
			[]string{attribute + " " + equals + " " + alone, attribute + "[0] " + startsWith + " " + other})
	}
	return err
}

// addMatch adds the conditions of a match.
func (c *conjunction) addMatch(m *gatewayv1.HTTPRouteMatch) error {
	if err := c.addPath(m); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	if m.Method != nil {
		return errMethod
	}
	if err := c.addHeaders(m.Headers); err != nil {
		return err
	}
	return c.addQueryParams(m.QueryParams)
}

func (c *conjunction) addPath(m *gatewayv1.HTTPRouteMatch) error {
	kind, value := gatewayapi.PathOf(m)
	if kind == gatewayv1.PathMatchPathPrefix {
		return c.addPathPrefix(strings.TrimSuffix(value, "/"))
	}
	operator, value, err := parseValue(string(kind), value)
	if err != nil {
		return err
	}
	text, err := pathLiteral(value)
	c.singles = append(c.singles, path+" "+operator+" "+text)
	return err
}

// parseValue returns the operator and the operand for the value of a match. Paths, headers and parameters have the same names of types.
func parseValue(kind, value string) (operator, operand string, err error) {
	switch kind {
	case string(gatewayv1.PathMatchExact):
		return equals, value, nil
	case string(gatewayv1.PathMatchRegularExpression):
		return parsePattern(value)
	}
	return "", "", fmt.Errorf("matches of type %.40q are not supported", kind)
}

// addPathPrefix adds the conditions for the elements of a prefix without its last slash. The root needs none.
func (c *conjunction) addPathPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	exact, err := pathLiteral(prefix)
	if err != nil {
		return err
	}
	below, err := pathLiteral(prefix + "/")
	c.alternatives = append(c.alternatives, []string{path + " eq " + exact, path + " sw " + below})
	return err
}

// addHeaders adds the conditions on headers. Of several with the same name only the first counts.
func (c *conjunction) addHeaders(matches []gatewayv1.HTTPHeaderMatch) error {
	seen := map[string]bool{}
	for _, h := range matches {
		lower := strings.ToLower(string(h.Name))
		if seen[lower] {
			continue
		}
		seen[lower] = true
		if err := c.addHeader(&h); err != nil {
			return fmt.Errorf("header %.40q: %w", h.Name, err)
		}
	}
	return nil
}

func (c *conjunction) addHeader(h *gatewayv1.HTTPHeaderMatch) error {
	if strings.EqualFold(string(h.Name), "host") {
		return errHost
	}
	name, err := ignoreCase(string(h.Name))
	if err != nil {
		return err
	}
	operator, value, err := parseValue(string(ptr.Deref(h.Type, gatewayv1.HeaderMatchExact)), h.Value)
	if err != nil {
		return err
	}
	attribute := headers + "[" + name + "]"
	if operator != equals {
		attribute += "[0]" // the language compares a part of the first value only
	}
	text, err := quoteLiteral(value)
	c.singles = append(c.singles, attribute+" "+operator+" "+text)
	return err
}

// addQueryParams adds the conditions on query parameters. Of several with the same name only the first counts.
func (c *conjunction) addQueryParams(matches []gatewayv1.HTTPQueryParamMatch) error {
	seen := map[gatewayv1.HTTPHeaderName]bool{}
	for _, q := range matches {
		if seen[q.Name] {
			continue
		}
		seen[q.Name] = true
		if err := c.addQueryParam(&q); err != nil {
			return fmt.Errorf("query parameter %.40q: %w", q.Name, err)
		}
	}
	return nil
}

func (c *conjunction) addQueryParam(q *gatewayv1.HTTPQueryParamMatch) error {
	name, err := queryLiteral(string(q.Name))
	if err != nil {
		return err
	}
	operator, value, err := parseValue(string(ptr.Deref(q.Type, gatewayv1.QueryParamMatchExact)), q.Value)
	if err != nil {
		return err
	}
	if operator != equals {
		return errPattern // only the whole value of a parameter can be compared
	}
	text, err := queryLiteral(value)
	c.singles = append(c.singles, query+"["+name+"] "+operator+" "+text)
	return err
}
