// Package adopt makes the record of a load balancer that another controller has programmed, or whose record was lost.
//
// The objects of oke-gateway-api are those of the names of a Gateway:
//
//	listeners       with the name of a listener of the Gateway
//	policies        of these listeners; rules that no HTTPRoute has in its annotation belong to others, and stay
//	backend sets    that only rules of HTTPRoutes use, and <gateway>-default
//	certificates    in the annotation of the Gateway
//
// Everything else on the load balancer is foreign. All objects keep their names, so the program finds what it wants already there. What it
// does not want under its name, such as the backend set of an earlier rule, gets a key that nothing has: the program removes it when
// nothing refers to it any longer.
package adopt

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Input is the cluster and the load balancer as they are.
type Input struct {
	LoadBalancer string
	Live         *lblayout.Live
	// PathRouted are the backend sets of path route sets, which other writers use.
	PathRouted map[string]bool
	Gateways   []*gatewayv1.Gateway
	// Routes are the HTTPRoutes of these Gateways.
	Routes  []*gatewayv1.HTTPRoute
	Secrets map[types.NamespacedName]*corev1.Secret
	Keys    Keys
}

// Keys are the keys of the program's own plan.
type Keys struct {
	// Listener and Policy return the names that the program gives to a listener and to its policy without a record.
	Listener func(g *gatewayv1.Gateway, l *gatewayv1.Listener) string
	Policy   func(gateway types.NamespacedName, listener string) string
	// PolicyKey returns the key of the policy of a listener.
	PolicyKey func(gateway types.NamespacedName, listener string) string
	// Set returns the key of the backend set of a rule. It is empty if the rule needs none.
	Set func(r *gatewayv1.HTTPRoute, rule int) string
	// DefaultSet is the key of the default backend set of listeners.
	DefaultSet string
	// Certificate returns the key of the certificate of a Secret.
	Certificate func(s *corev1.Secret) string
	// Own are the objects of the program's plan, with the names that it chooses if they are not in the record.
	Own []lbrecord.Object
}

// Finding is a sentence about an object.
type Finding struct {
	Object  string // such as "listener web"
	Message string
	// Refused means that nothing can be adopted.
	Refused bool
}

func (f Finding) String() string { return f.Object + ": " + f.Message }

// keyOfEarlier returns the key of an object that no plan wants.
func keyOfEarlier(name string) string { return "earlier " + name }

// Build returns the record of a load balancer, and findings for its user. The record is nil if a finding is a refusal.
func Build(in *Input) (*lbrecord.Record, []Finding) {
	b := &builder{
		in: in, record: &lbrecord.Record{LoadBalancer: in.LoadBalancer}, own: map[string]bool{}, adopted: map[string]map[string]bool{},
	}
	for _, g := range in.Gateways {
		b.record.Gateways = append(b.record.Gateways, nameOf(g).String())
		for i := range g.Spec.Listeners {
			if name, live := b.listenerOf(g, &g.Spec.Listeners[i]); live != nil {
				b.own[name] = true
			}
		}
	}
	slices.Sort(b.record.Gateways)
	for _, g := range in.Gateways {
		b.addListeners(g)
	}
	for _, g := range in.Gateways { // all policies are known now
		b.addDefault(g)
		b.addCertificates(g)
	}
	b.addSets()
	b.addOwn()
	slices.SortStableFunc(b.findings, func(x, y Finding) int { return cmp.Compare(x.Object, y.Object) })
	if slices.ContainsFunc(b.findings, func(f Finding) bool { return f.Refused }) {
		return nil, b.findings
	}
	return b.record, b.findings
}

// builder makes a record.
type builder struct {
	in       *Input
	record   *lbrecord.Record
	findings []Finding
	own      map[string]bool // listeners of the load balancer that are those of Gateways
	// adopted are the rules of HTTPRoutes by the policy of a listener.
	adopted map[string]map[string]bool
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName(cache.MetaObjectToName(o))
}

func (b *builder) addFinding(object, format string, args ...any) {
	b.findings = append(b.findings, Finding{Object: object, Message: fmt.Sprintf(format, args...)})
}

func (b *builder) addRefusal(object, format string, args ...any) {
	b.findings = append(b.findings, Finding{Object: object, Message: fmt.Sprintf(format, args...), Refused: true})
}

// adoptObject adds an object to the record, with a finding about it. Of two with the same key, only the first one has it.
func (b *builder) adoptObject(o lbrecord.Object, format string, args ...any) {
	b.addFinding(objectTitle(o.Kind, o.Name), format, args...)
	if b.record.HasObject(o.Kind, o.Name) {
		return
	}
	if b.record.FindByKey(o.Kind, o.Key) != nil {
		o.Key = keyOfEarlier(o.Name)
	}
	b.record.PutObject(o)
}

// addOwn adds the objects of the program's own names: those of a record that was lost.
func (b *builder) addOwn() {
	for _, o := range b.in.Keys.Own {
		if own, others := b.usersOf(o.Name); o.Kind == lbrecord.BackendSet && others && !own {
			continue // it belongs to the program of another cluster
		}
		exists := b.in.Live.HasObject(lblayout.Ref{Kind: o.Kind, Name: o.Name})
		if o.Kind != lbrecord.Listener && exists && !b.record.HasObject(o.Kind, o.Name) {
			own := lbrecord.Object{Kind: o.Kind, Name: o.Name, Key: o.Key, Owner: o.Owner}
			b.adoptObject(own, "it has the name that the program gives it")
		}
	}
}

// titles are kinds in sentences.
var titles = map[lbrecord.Kind]string{
	lbrecord.Listener: "listener", lbrecord.RoutingPolicy: "routing policy", lbrecord.RuleSet: "rule set", lbrecord.Hostname: "hostname",
	lbrecord.Certificate: "certificate", lbrecord.BackendSet: "backend set",
}

func objectTitle(kind lbrecord.Kind, name string) string { return titles[kind] + " " + name }

// addListeners adds the listeners of a Gateway, and their policies.
func (b *builder) addListeners(g *gatewayv1.Gateway) {
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		name, live := b.listenerOf(g, l)
		if live == nil {
			b.addFinding(objectTitle(lbrecord.Listener, string(l.Name)), "the load balancer does not have it: the program creates it")
			continue
		}
		if live.Port != int(l.Port) {
			b.addRefusal(objectTitle(lbrecord.Listener, name), "it has port %d, and Gateway %s wants port %d: "+
				"rename one of them", live.Port,
				nameOf(g), l.Port)
			continue
		}
		if live.Protocol != lblayout.ProtocolHTTP && live.Protocol != lblayout.ProtocolHTTP2 {
			b.addRefusal(objectTitle(lbrecord.Listener, name), "it has protocol %s, which is not one of HTTPRoutes", live.Protocol)
			continue
		}
		key := lbrecord.ListenerKey(l.Port, string(ptr.Deref(l.Hostname, "")))
		b.adoptObject(lbrecord.Object{Kind: lbrecord.Listener, Name: name, Key: key, Owner: nameOf(g).String()},
			"listener %s of Gateway %s", l.Name, nameOf(g))
		b.addHostnames(live)
		b.addPolicy(g, string(l.Name), name, live)
	}
}

// listenerOf returns the live listener of a listener of a Gateway: that of its name, or that of the program's name.
func (b *builder) listenerOf(g *gatewayv1.Gateway, l *gatewayv1.Listener) (string, *lblayout.Listener) {
	for _, name := range []string{b.in.Keys.Listener(g, l), string(l.Name)} {
		if live, ok := b.in.Live.Listeners[name]; ok {
			return name, &live
		}
	}
	return "", nil
}

// addHostnames adds the hostnames that only listeners of the Gateways use.
func (b *builder) addHostnames(live *lblayout.Listener) {
	for _, name := range live.Hostnames {
		h, ok := b.in.Live.Hostnames[name]
		if !ok || b.record.HasObject(lbrecord.Hostname, name) {
			continue
		}
		b.adoptObject(lbrecord.Object{Kind: lbrecord.Hostname, Name: name, Key: lbrecord.HostnameKey(h.Hostname)},
			"hostname %s of an adopted listener", h.Hostname)
	}
}

// addPolicy adds the policy of a listener, and takes over the rules that HTTPRoutes have in their annotations.
func (b *builder) addPolicy(g *gatewayv1.Gateway, listener, name string, live *lblayout.Listener) {
	policy := live.Policy
	if policy == "" {
		return
	}
	object := objectTitle(lbrecord.RoutingPolicy, policy)
	if policy != b.in.Keys.Policy(nameOf(g), listener) && !isUpstreamPolicy(policy, listener) && !b.hasOwnRules(policy) {
		b.addRefusal(object,
			"listener %s uses it, and neither oke-gateway-api nor this program gives a policy this name: remove it from the listener", name)
		return
	}
	for other, l := range b.in.Live.Listeners {
		if l.Policy == policy && other != name && !b.own[other] {
			b.addRefusal(object, "listener %s uses it, which belongs to no adopted Gateway: give that listener a policy of its own", other)
			return
		}
	}
	b.record.PutObject(lbrecord.Object{
		Kind: lbrecord.RoutingPolicy, Name: policy, Key: b.in.Keys.PolicyKey(nameOf(g), listener),
		AdoptedRules: b.adoptRules(policy, listener),
	})
	b.addFinding(object, "policy of listener %s", name)
}

// hasOwnRules reports whether a policy has rules of the program. It stays with its listener, also if that gets another name.
func (b *builder) hasOwnRules(policy string) bool {
	return slices.ContainsFunc(b.in.Live.Policies[policy].Rules, func(r plan.Rule) bool { return lblayout.IsOwnRule(r.Name) })
}

// adoptRules returns the rules of a policy that the HTTPRoutes of a listener have in their annotations.
func (b *builder) adoptRules(policy, listener string) (adopted []string) {
	rules := b.adopted[policy]
	if rules == nil {
		rules = map[string]bool{}
		b.adopted[policy] = rules
	}
	for _, r := range b.in.Routes {
		for _, rule := range annotatedRules(r)[listener] {
			rules[rule] = true
		}
	}
	for _, r := range b.in.Live.Policies[policy].Rules {
		switch {
		case !b.replacesRule(policy, r.Name):
			b.addFinding(objectTitle(lbrecord.RoutingPolicy, policy), "rule %s is of no HTTPRoute: it stays", r.Name)
		case !lblayout.IsOwnRule(r.Name):
			adopted = append(adopted, r.Name)
		}
	}
	slices.Sort(adopted)
	return adopted
}

// replacesRule reports whether a rule of a policy is one that the program replaces.
func (b *builder) replacesRule(policy, rule string) bool {
	return rule == catchAll || b.adopted[policy][rule] || lblayout.IsOwnRule(rule)
}

// addCertificates adds the certificates in the annotation of a Gateway. The certificate of the present content of a Secret keeps serving,
// others are removed.
func (b *builder) addCertificates(g *gatewayv1.Gateway) {
	current := map[string]string{}
	for i := range g.Spec.Listeners {
		l := &g.Spec.Listeners[i]
		if l.TLS == nil {
			continue
		}
		for _, ref := range l.TLS.CertificateRefs {
			namespace := string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(g.Namespace)))
			secret := b.in.Secrets[types.NamespacedName{Namespace: namespace, Name: string(ref.Name)}]
			if secret == nil {
				continue
			}
			current[upstreamCertificate(namespace, secret.Name, secret.ResourceVersion)] = b.in.Keys.Certificate(secret)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(annotatedCertificates(g))) {
		object := objectTitle(lbrecord.Certificate, name)
		switch key := current[name]; {
		case !b.in.Live.Certificates[name]:
			b.addFinding(object, "the load balancer does not have it")
		case !b.certificateOnlyOurs(name):
			b.addFinding(object, "a listener that is not adopted uses it: it stays")
		case key == "" && !b.in.Live.Uses[lblayout.Ref{Kind: lbrecord.Certificate, Name: name}]:
			b.addFinding(object, "nothing uses it: it stays, delete it by hand")
		case key == "":
			b.adoptObject(lbrecord.Object{Kind: lbrecord.Certificate, Name: name, Key: keyOfEarlier(name)},
				"certificate of Gateway %s, of an earlier content of a Secret: the program replaces it", nameOf(g))
		default:
			b.adoptObject(lbrecord.Object{Kind: lbrecord.Certificate, Name: name, Key: key}, "certificate of Gateway %s", nameOf(g))
		}
	}
}

func (b *builder) certificateOnlyOurs(certificate string) bool {
	for name, l := range b.in.Live.Listeners {
		if l.TLS != nil && l.TLS.Certificate == certificate && !b.own[name] {
			return false
		}
	}
	return true
}
