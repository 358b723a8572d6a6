package semantics

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// This file models VirtualServices at an Istio Gateway, from the reference
// (https://istio.io/latest/docs/reference/config/networking/virtual-service/) and the source of pilot. The tests of this repository do
// not run Istio.
//
// Only the most specific host that covers the request counts. If no rule of this host matches, less specific hosts do not get the
// request. The VirtualServices of the host form one list of rules: the oldest VirtualService first, then by name and namespace. A
// VirtualService contributes its rules up to its first catch-all rule. Catch-all rules come after all other rules. The first rule that
// matches wins, regardless of the length of its path.
//
// A match of uri ignores the query, and is exact, or a prefix that compares characters. rewrite.uri replaces only the characters of the
// prefix: prefix "/a" and uri "/" change "/a/b" to "//b".
//
// Modeled: matches of uri (exact, prefix), headers (exact) and gateways; rewrites of uri and authority; request headers that the rule
// sets; timeout; one destination with a port. Not modeled: everything else, sidecars (mesh), and the hosts of the Gateway itself.

// istioRule is one match of a rule of a VirtualService.
type istioRule struct {
	request *request
	source  *istiov1.VirtualService
	index   int
	spec    *networkingv1alpha3.HTTPRoute
	match   *networkingv1alpha3.HTTPMatchRequest // nil: matches every request
}

// throughIstio finds the contenders for a request to an Istio Gateway.
func (w *World) throughIstio(r *request) ([]contender, error) {
	gateway := r.entrance.IstioGateway
	if namespace, name, ok := strings.Cut(gateway, "/"); !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("gateway %q of Istio is not a namespace and a name: %w", gateway, ErrInvalid)
	}
	var services []*istiov1.VirtualService
	w.istio[gateway].forEachCovering(r.host, func(_ string, found []*istiov1.VirtualService) bool {
		services = slices.Clone(found)
		return false
	})
	slices.SortFunc(services, func(a, b *istiov1.VirtualService) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Namespace, b.Namespace))
	})
	var rules, catchAll []*istioRule
	for _, v := range slices.Compact(services) {
		if err := w.checkVirtualService(v); err != nil {
			return nil, err
		}
		for _, rule := range flattenRules(v, gateway) {
			rule.request = r
			if rule.catchesAll() {
				catchAll = append(catchAll, rule)
				break // pilot drops the rules after it
			}
			rules = append(rules, rule)
		}
	}
	var contenders []contender
	for _, rule := range append(rules, catchAll...) {
		fits, err := rule.fitsRequest()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", objectIdentity("VirtualService", rule.source), rule.describeRule(), err)
		}
		if fits {
			contenders = append(contenders, rule)
		}
	}
	return contenders, nil
}

func (w *World) checkVirtualService(v *istiov1.VirtualService) error {
	err := cmp.Or(w.checkReadable("VirtualService", v), onlyMessageFields(&v.Spec, "hosts", "gateways", "http", "export_to"))
	if err == nil && len(v.Spec.ExportTo) > 0 && !slices.Contains(v.Spec.ExportTo, "*") {
		err = fmt.Errorf("exportTo %q: %w", v.Spec.ExportTo, ErrNotModeled)
	}
	for _, h := range v.Spec.Hosts {
		bare := strings.TrimPrefix(h, "*.")
		if err == nil && h != "*" && (strings.Contains(bare, "*") || bare == h && !strings.Contains(h, ".")) {
			err = fmt.Errorf("host %q: %w", h, ErrNotModeled)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", objectIdentity("VirtualService", v), err)
	}
	return nil
}

// flattenRules returns the matches of a VirtualService that apply at a gateway, in their order.
func flattenRules(v *istiov1.VirtualService, gateway string) []*istioRule {
	var rules []*istioRule
	for i, spec := range v.Spec.Http {
		if len(spec.GetMatch()) == 0 {
			rules = append(rules, &istioRule{source: v, index: i, spec: spec})
		}
		for _, m := range spec.GetMatch() {
			at := slices.ContainsFunc(m.GetGateways(), func(g string) bool { return g == gateway || v.Namespace+"/"+g == gateway })
			if at || len(m.GetGateways()) == 0 {
				rules = append(rules, &istioRule{source: v, index: i, spec: spec, match: m})
			}
		}
	}
	return rules
}

func (i *istioRule) sourceObject() (string, metav1.Object) { return "VirtualService", i.source }

func (i *istioRule) describeRule() string {
	text := fmt.Sprintf("rule %d: ", i.index)
	switch m := i.match.GetUri().GetMatchType().(type) {
	case *networkingv1alpha3.StringMatch_Exact:
		text += "uri exact " + m.Exact
	case *networkingv1alpha3.StringMatch_Prefix:
		text += "uri prefix " + m.Prefix
	default:
		text += "any uri"
	}
	for _, name := range sortedKeys(i.match.GetHeaders()) {
		text += fmt.Sprintf(", header %s: %s", name, i.match.GetHeaders()[name].GetExact())
	}
	return text
}

func (i *istioRule) losesBy(winner contender) string {
	w := winner.(*istioRule) // both belong to one Gateway
	switch {
	case i.catchesAll() && !w.catchesAll():
		return "rules for everything come last"
	case i.source == w.source:
		return "its rule comes later in the object"
	case i.source.CreationTimestamp.Time.After(w.source.CreationTimestamp.Time):
		return "its object is younger"
	}
	return "its object has the same age and comes later by name"
}

// catchesAll reports whether the rule matches every request.
func (i *istioRule) catchesAll() bool {
	m := i.match
	everywhere := m.GetUri() == nil || m.GetUri().GetPrefix() == "/"
	return everywhere && onlyMessageFields(m, "name", "uri", "gateways", "stat_prefix") == nil
}

// fitsRequest reports whether the match applies to the request.
func (i *istioRule) fitsRequest() (bool, error) {
	if err := onlyMessageFields(i.match, "name", "uri", "headers", "gateways", "stat_prefix"); err != nil {
		return false, err
	}
	fits := true
	switch m := i.match.GetUri().GetMatchType().(type) {
	case nil:
	case *networkingv1alpha3.StringMatch_Exact:
		fits = i.request.path == m.Exact
	case *networkingv1alpha3.StringMatch_Prefix:
		fits = strings.HasPrefix(i.request.path, m.Prefix)
	default:
		return false, fmt.Errorf("uri: %w", ErrNotModeled)
	}
	for _, name := range sortedKeys(i.match.GetHeaders()) {
		want, isExact := i.match.GetHeaders()[name].GetMatchType().(*networkingv1alpha3.StringMatch_Exact)
		if !isExact || isAuthority(name) || strings.HasPrefix(name, ":") || strings.HasPrefix(name, "@") {
			return false, fmt.Errorf("header %s: %w", name, ErrNotModeled)
		}
		got, found := i.request.header[canonicalHeader(name)]
		fits = fits && found && got == want.Exact
	}
	return fits, nil
}

// resolveAnswer rewrites the request, and returns the destination of the rule.
func (i *istioRule) resolveAnswer() (*Answer, error) {
	if err := onlyMessageFields(i.spec, "name", "match", "route", "rewrite", "timeout", "headers"); err != nil {
		return nil, err
	}
	a := i.request.newAnswer()
	if err := i.rewriteRequest(a); err != nil {
		return nil, err
	}
	if t := i.spec.GetTimeout(); t != nil {
		d := t.AsDuration()
		if t.CheckValid() != nil || d < 0 {
			return nil, fmt.Errorf("timeout %s: %w", t, ErrInvalid)
		}
		a.Timeout = &d
	}
	switch destinations := i.spec.GetRoute(); {
	case len(destinations) == 0:
		return nil, ErrNoBackend
	case len(destinations) > 1:
		return nil, fmt.Errorf("%d destinations: %w", len(destinations), ErrNotModeled)
	default:
		if err := onlyMessageFields(destinations[0], "destination", "weight"); err != nil {
			return nil, err
		}
		var err error
		a.Backend, err = i.destinationBackend(destinations[0].GetDestination())
		return a, err
	}
}

// rewriteRequest changes the path, the authority and the headers. The new uri replaces the prefix of a prefix match, the whole path of an
// exact match, and the leading slash if the rule does not match the uri.
func (i *istioRule) rewriteRequest(a *Answer) error {
	rewrite, headers := i.spec.GetRewrite(), i.spec.GetHeaders()
	if err := cmp.Or(onlyMessageFields(rewrite, "uri", "authority"), onlyMessageFields(headers, "request"),
		onlyMessageFields(headers.GetRequest(), "set")); err != nil {
		return err
	}
	if uri := rewrite.GetUri(); uri != "" {
		prefix := a.Path
		switch m := i.match.GetUri().GetMatchType().(type) {
		case *networkingv1alpha3.StringMatch_Prefix:
			prefix = m.Prefix
		case nil:
			prefix = "/"
		}
		a.Path = uri + strings.TrimPrefix(a.Path, prefix)
	}
	a.Host = cmp.Or(rewrite.GetAuthority(), a.Host)
	for name, value := range maps.All(headers.GetRequest().GetSet()) {
		if isAuthority(name) || strings.HasPrefix(name, ":") {
			return fmt.Errorf("header %s: %w", name, ErrNotModeled)
		}
		a.Header[canonicalHeader(name)] = value
	}
	return nil
}

func isAuthority(name string) bool {
	return strings.EqualFold(name, "host") || strings.EqualFold(name, ":authority")
}

// destinationBackend returns the Service of a destination, or the host if it is not the name of a Service. A short name is the name of a
// Service in the namespace of the VirtualService.
func (i *istioRule) destinationBackend(d *networkingv1alpha3.Destination) (Backend, error) {
	if err := onlyMessageFields(d, "host", "port"); err != nil {
		return Backend{}, err
	}
	port := d.GetPort().GetNumber()
	if d.GetHost() == "" || port == 0 || port > 65535 {
		return Backend{}, fmt.Errorf("destination %q, port %d: %w", d.GetHost(), port, ErrNotModeled)
	}
	b := Backend{Kind: KindService, Namespace: i.source.Namespace, Name: d.GetHost(), Port: int32(port)}
	switch labels := strings.SplitN(d.GetHost(), ".", 4); {
	case len(labels) == 4 && labels[2] == "svc":
		b.Namespace, b.Name = labels[1], labels[0]
	case len(labels) > 1:
		b.Kind, b.Namespace = KindHost, ""
	}
	return b, nil
}
