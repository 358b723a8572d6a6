package semantics

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	networkingv1alpha3 "istio.io/api/networking/v1alpha3"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
)

// VirtualServices at a gateway of Istio, as its reference (https://istio.io/latest/docs/reference/config/networking/virtual-service/),
// its guidelines for several VirtualServices of one host, and Envoy say.
//
// The most specific host that covers the request decides, and hosts less specific get nothing of what its rules leave. The
// VirtualServices of that host are one list of rules: the oldest first, then by name and namespace, each in its order up to a
// rule for everything; rules for everything come after all others. The first that fits wins.
//
// A uri is compared without the query: exact, by the letters of a prefix, or a whole expression. rewrite.uri takes the place of
// the letters of the prefix and of no more: prefix "/a" and uri "/" make "//b" of "/a/b". It takes the place of the whole path
// where the match is not a prefix. An authority is compared as the client sent it, with the port.
//
// Modelled: matches by uri, method, authority, headers and gateways; rewrites of uri (by an expression, too) and authority;
// request headers of the rule and of its destination; timeout; one destination with a port. Not: sidecars (mesh), the hosts of
// the Gateway itself, and all other fields.

// throughIstio answers a request to an Istio gateway.
func (w *World) throughIstio(r *request) (*answer, error) {
	gateway := r.entrance.IstioGateway
	if namespace, name, ok := strings.Cut(gateway, "/"); !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("gateway %q of Istio: it is not a namespace and a name: %w", gateway, ErrInvalid)
	}
	all, err := w.ofHost(gateway, r.host)
	if err != nil {
		return nil, err
	}
	rules, err := merge(all, gateway)
	if err != nil {
		return nil, err
	}
	for _, rule := range rules {
		fits, err := rule.fits(r)
		if err != nil {
			return nil, rule.wrap(err)
		}
		if !fits {
			continue
		}
		a, err := rule.answer(r)
		if err != nil {
			return nil, rule.wrap(err)
		}
		return a, nil
	}
	return nil, fmt.Errorf("gateway %s of Istio: %w", gateway, ErrNoRoute)
}

// ofHost returns the VirtualServices at a gateway that have the most specific host of those that cover one.
func (w *World) ofHost(gateway, host string) ([]*istiov1.VirtualService, error) {
	var best string
	var all []*istiov1.VirtualService
	for _, v := range w.VirtualServices {
		if !atGateway(v.Spec.Gateways, v.Namespace, gateway) {
			continue
		}
		name, err := virtualHost(v, host)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", identity("VirtualService", v), err)
		}
		switch c := compareHostnames(name, best); {
		case name == "" || c > 0:
			continue
		case c < 0:
			best, all = name, nil
		}
		all = append(all, v)
	}
	return all, nil
}

// atGateway reports whether a list of gateways, of a VirtualService of a namespace, has a gateway.
func atGateway(gateways []string, namespace, gateway string) bool {
	return slices.ContainsFunc(gateways, func(g string) bool {
		return g == gateway || !strings.Contains(g, "/") && namespace+"/"+g == gateway
	})
}

// virtualHost returns the most specific host of a VirtualService that covers a host, or nothing.
func virtualHost(v *istiov1.VirtualService, host string) (string, error) {
	found := ""
	for _, h := range v.Spec.Hosts {
		h = strings.ToLower(h)
		bare := strings.TrimPrefix(h, wildcard)
		if h != "*" && (strings.Contains(bare, "*") || bare == h && !strings.Contains(h, ".")) {
			return "", fmt.Errorf("host %q: %w", h, ErrUnsupported)
		}
		if (h == "*" || covers(h, host)) && (found == "" || compareHostnames(h, found) < 0) {
			found = h
		}
	}
	return found, nil
}

// istioRule is one match of a rule, or a rule that has none.
type istioRule struct {
	in    *istiov1.VirtualService
	index int
	rule  *networkingv1alpha3.HTTPRoute
	match *networkingv1alpha3.HTTPMatchRequest // nil: everything
}

func (i *istioRule) wrap(err error) error {
	return fmt.Errorf("%s: rule %d: %w", identity("VirtualService", i.in), i.index, err)
}

// merge returns the rules of VirtualServices of one host in the order in which they are tried.
func merge(all []*istiov1.VirtualService, gateway string) ([]*istioRule, error) {
	slices.SortFunc(all, func(a, b *istiov1.VirtualService) int {
		return cmp.Or(
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Namespace, b.Namespace),
		)
	})
	var rules, last []*istioRule
	for _, v := range all {
		if err := checkVirtualService(v); err != nil {
			return nil, fmt.Errorf("%s: %w", identity("VirtualService", v), err)
		}
		for _, rule := range flatten(v, gateway) {
			if rule.catchesAll() {
				last = append(last, rule)
				break // what follows in this VirtualService is never reached
			}
			rules = append(rules, rule)
		}
	}
	return append(rules, last...), nil
}

func checkVirtualService(v *istiov1.VirtualService) error {
	if err := onlyMessageFields(&v.Spec, "hosts", "gateways", "http", "export_to"); err != nil {
		return err
	}
	if len(v.Spec.ExportTo) > 0 && !slices.Contains(v.Spec.ExportTo, "*") {
		return fmt.Errorf("exportTo %q: %w", v.Spec.ExportTo, ErrUnsupported)
	}
	return nil
}

// flatten returns the matches of a VirtualService that hold at a gateway.
func flatten(v *istiov1.VirtualService, gateway string) []*istioRule {
	var rules []*istioRule
	for i, rule := range v.Spec.Http {
		if len(rule.GetMatch()) == 0 {
			rules = append(rules, &istioRule{in: v, index: i, rule: rule})
		}
		for _, m := range rule.GetMatch() {
			if len(m.GetGateways()) == 0 || atGateway(m.GetGateways(), v.Namespace, gateway) {
				rules = append(rules, &istioRule{in: v, index: i, rule: rule, match: m})
			}
		}
	}
	return rules
}
