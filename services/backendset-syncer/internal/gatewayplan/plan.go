package gatewayplan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/actor"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/weights"
	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
	"fairlead.dev/services/backendset-syncer/internal/policy"
)

// Input is what a plan depends on, besides the snapshot of the cluster. See Resolution.NewInput.
type Input struct {
	LoadBalancer string
	// Document is the administrator's configuration, nil without one, and Bindings are all BackendSetBindings.
	Document *policy.Document
	Bindings []*v1alpha1.BackendSetBinding
	Record   *lbrecord.Record // nil before the first one
	Live     *lblayout.Live
	// Gone are objects whose deletion was wanted, and that the load balancer does not have.
	Gone []lblayout.Ref
	// Recovering means that the record was lost: backend sets of the load balancer with names that the program chooses are its own.
	Recovering bool
	// Weights are the weights of the previous plan, by the keys of sets.
	Weights map[string]weights.Choice
	Now     time.Time
}

// Plan is what the Gateways of a load balancer want.
type Plan struct {
	LoadBalancer string
	Listeners    []*Listener
	Gateways     []*ResolvedGateway
	Routes       []*Route

	Layout  *lblayout.Wanted
	Version string // of the layout
	Sets    map[string]*Set
	Record  *lbrecord.Record
	// Lost are objects that the load balancer has and the record does not, with names that only this program chooses. Nothing may be
	// written before subcommand adopt has written a new record.
	Lost []lblayout.Ref
	// Services and Pools are what routes refer to, whether it exists or not.
	Services, Pools map[cache.ObjectName]bool
}

// Set is a wanted backend set.
type Set struct {
	Key          string
	Wanted       *actor.Wanted
	WeightChoice weights.Choice
	Problem      plan.Problem // of its endpoints
}

// planBuilder builds a Plan.
type planBuilder struct {
	*Input
	*Plan

	planner *Planner
	limits  policy.GatewayLimits
	isPod   func(netip.Addr) bool
	before  *lbrecord.Record // never nil

	valid   []*Listener
	input   *routing.Input
	desired *routing.Desired
	keys    map[lblayout.Ref]string // of certificates

	frozenListeners map[string]bool // names
	endpoints       map[routing.Backend]backendEndpoints
}

// BuildPlan returns the plan of a load balancer.
func (p *Planner) BuildPlan(r *Resolution, in *Input) *Plan {
	b := &planBuilder{
		Input: in, planner: p, isPod: podFilter(in.Document), before: cmp.Or(in.Record, &lbrecord.Record{LoadBalancer: in.LoadBalancer}),
		keys: map[lblayout.Ref]string{}, frozenListeners: map[string]bool{}, endpoints: map[routing.Backend]backendEndpoints{},
		Plan: &Plan{
			LoadBalancer: in.LoadBalancer, Gateways: r.Balancers[in.LoadBalancer],
			Layout: &lblayout.Wanted{RuleSetNames: map[string]bool{}}, Sets: map[string]*Set{},
			Services: map[cache.ObjectName]bool{}, Pools: map[cache.ObjectName]bool{},
		},
	}
	b.Plan.Record = b.before.Clone()
	b.Plan.Record.Claims, b.Plan.Record.Gateways = map[string]lbrecord.Claim{}, nil
	if len(b.Gateways) > 0 {
		b.limits = b.Gateways[0].Limits
	}
	// Each step uses the results of the steps before it.
	b.freezeListeners(r) // a frozen listener stays, and no other listener gets its port
	b.buildListeners()   // decides which listeners get their ports
	b.attachRoutes()     // only valid listeners accept routes
	b.decideClaims()     // refuses rules whose host and path belong to another namespace
	b.computeRouting()   // admits the other rules
	b.acceptRoutes()     // tells each route which of its rules were admitted
	b.recordClaims()     // of the admitted rules
	b.buildLayout()      // listeners, policies and sets of the admitted rules
	b.buildSets()        // the endpoints of these sets
	b.retireObjects()    // recorded objects that the layout does not have
	b.Version, b.Lost = versionOf(b.Layout), b.findLost()
	return b.Plan
}

func versionOf(w *lblayout.Wanted) string {
	text, err := json.Marshal(w)
	if err != nil {
		panic(fmt.Sprintf("layout is not JSON: %v", err)) // unreachable: it consists of texts and numbers
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// freezeListeners finds the listeners of Gateways that cannot be resolved.
func (b *planBuilder) freezeListeners(r *Resolution) {
	for _, name := range b.before.Gateways {
		if !r.isFrozen(name) {
			continue
		}
		b.Plan.Record.Gateways = append(b.Plan.Record.Gateways, name)
		for i := range b.before.Objects {
			if o := &b.before.Objects[i]; o.Kind == lbrecord.Listener && o.Owner == name {
				b.frozenListeners[o.Name] = true
			}
		}
	}
}

// reservedSets is the number of backend sets that no plan uses. A rule that gets another set needs both sets for a while: the reserve makes
// such a change possible at the limit, one at a time.
const reservedSets = 1

// computeRouting computes the routing of all valid listeners.
func (b *planBuilder) computeRouting() {
	b.input = &routing.Input{
		Limits: routing.Limits{
			Sets: max(b.limits.BackendSets-reservedSets, 1), Conditions: b.limits.Conditions, Redirects: b.redirectsLeft(),
			Namespaces: map[string]policy.RouteLimits{},
		},
		Names: b.before.NamesByKey(lbrecord.RoutingPolicy), Fallback: b.planner.fallback,
	}
	maps.Copy(b.input.Names, b.before.NamesByKey(lbrecord.BackendSet))
	for _, r := range b.Routes {
		if b.Document != nil {
			b.input.Limits.Namespaces[r.Namespace] = b.Document.RouteLimits(r.Namespace, b.limits)
		}
	}
	b.input.Foreign = b.foreignSets()
	for _, l := range b.Listeners {
		if !l.isValid() {
			continue
		}
		b.valid = append(b.valid, l)
		b.input.Listeners = append(b.input.Listeners, routing.Listener{
			Gateway: l.gateway.gatewayName(), Name: string(l.Name), Hostname: l.lowerHostname(), Port: l.Port, TLS: l.tls != nil,
			Routes: l.routes, Served: b.servedBy(l), Redirected: b.isRedirected(l),
		})
	}
	b.namePolicies()
	for i, l := range b.valid {
		b.input.Listeners[i].Reserved = b.conditionsOfOthers(b.input.Names[l.policyKey()])
	}
	b.desired = routing.Build(b.input)
}

// foreignSets returns the backend sets that do not belong to Gateways: live ones that the record does not list, and those of bindings.
func (b *planBuilder) foreignSets() []string {
	var foreign []string
	for name := range b.Live.Sets {
		if !b.before.HasObject(lbrecord.BackendSet, name) && !b.Recovering {
			foreign = append(foreign, name)
		}
	}
	for _, binding := range b.Bindings {
		// A binding without a set cannot keep a name, which is not secret, from a route.
		if name := binding.Spec.BackendSetName; binding.Status.HeldSince != nil && binding.Spec.LoadBalancerID == b.Input.LoadBalancer &&
			!slices.Contains(foreign, name) && !b.before.HasObject(lbrecord.BackendSet, name) {
			foreign = append(foreign, name)
		}
	}
	slices.Sort(foreign)
	return foreign
}

// usedByFrozen reports whether a frozen listener needs an object that no plan has.
func (b *planBuilder) usedByFrozen(kind lbrecord.Kind, name string) bool {
	for listener := range b.frozenListeners {
		l, found := b.Live.Listeners[listener]
		if !found {
			continue
		}
		switch kind {
		case lbrecord.BackendSet:
			if l.DefaultSet == name && name != "" && len(b.Gateways) == 0 ||
				slices.ContainsFunc(b.Live.Policies[l.Policy].Rules, func(r plan.Rule) bool { return r.Set == name }) {
				return true
			}
		case lbrecord.RoutingPolicy:
			if l.Policy == name {
				return true
			}
		}
	}
	return false
}

// recordObject wants an object, and records it.
func (b *planBuilder) recordObject(kind lbrecord.Kind, key, name string) lblayout.Ref {
	b.Plan.Record.PutObject(lbrecord.Object{Kind: kind, Key: key, Name: name})
	return lblayout.Ref{Kind: kind, Name: name}
}

// buildLayout computes the layout.
func (b *planBuilder) buildLayout() {
	w := b.Layout
	w.MaxSets, w.MaxListeners = b.limits.BackendSets, b.limits.Listeners
	for i := range b.desired.Sets {
		s := &b.desired.Sets[i]
		b.recordObject(lbrecord.BackendSet, s.Key, s.Name)
		w.Sets = append(w.Sets, lblayout.Set{Name: s.Name, Health: b.parametersOf(s).healthChecker()})
	}
	for _, o := range b.before.Objects {
		if o.Kind == lbrecord.RuleSet {
			w.RuleSetNames[o.Name] = true
		}
	}
	for i, l := range b.valid {
		b.addListener(l, &b.desired.Policies[i])
	}
	for _, g := range b.Gateways {
		if name := g.gatewayName().String(); !slices.Contains(b.Plan.Record.Gateways, name) {
			b.Plan.Record.Gateways = append(b.Plan.Record.Gateways, name)
		}
	}
	slices.Sort(b.Plan.Record.Gateways)
}

// addListener adds a listener with everything that it refers to.
func (b *planBuilder) addListener(l *Listener, p *routing.Policy) {
	w, owner := b.Layout, l.gateway.gatewayName().String()
	if l.tls != nil && l.tls.KeepCertificate && b.before.FindByKey(lbrecord.Listener, l.key) == nil {
		return // it was never programmed
	}
	l.name = b.listenerName(l)
	listener := lblayout.Listener{
		Name: l.name, DefaultSet: b.desired.Default, Port: int(l.Port), Protocol: l.layoutProtocol(), TLS: l.tls,
		IdleTimeout: l.gateway.Parameters.IdleTimeout,
	}
	if h := l.lowerHostname(); h != "" {
		key := lbrecord.HostnameKey(h)
		name := b.nameOf(lbrecord.Hostname, key, h)
		l.needs = append(l.needs, b.recordObject(lbrecord.Hostname, key, name))
		listener.Hostnames = []string{name}
		if !w.HasObject(lblayout.Ref{Kind: lbrecord.Hostname, Name: name}) {
			w.Hostnames = append(w.Hostnames, lblayout.Hostname{Name: name, Hostname: h})
		}
	}
	if l.cert != nil {
		ref := lblayout.Ref{Kind: lbrecord.Certificate, Name: l.cert.Name}
		l.needs = append(l.needs, b.recordObject(lbrecord.Certificate, b.keys[ref], l.cert.Name))
		if !w.HasObject(ref) {
			w.Certificates = append(w.Certificates, *l.cert)
		}
	}
	listener.Policy = b.addPolicy(l, p)
	if p.Redirect != nil {
		key := lbrecord.RuleSetKey(owner, string(l.Name))
		name := b.nameOf(lbrecord.RuleSet, key, l.gateway.Name+"-"+string(l.Name))
		w.RuleSetNames[name] = true
		l.needs = append(l.needs, b.recordObject(lbrecord.RuleSet, key, name))
		listener.RuleSets = []string{name}
		w.RuleSets = append(w.RuleSets, lblayout.RuleSet{Name: name, Redirect: p.Redirect})
	}
	b.Plan.Record.PutObject(lbrecord.Object{Kind: lbrecord.Listener, Key: l.key, Name: l.name, Owner: owner, Namespaces: p.Namespaces})
	l.needs = append(l.needs, lblayout.Ref{Kind: lbrecord.Listener, Name: l.name},
		lblayout.Ref{Kind: lbrecord.BackendSet, Name: listener.DefaultSet})
	w.Listeners = append(w.Listeners, listener)
}

// findLost returns the wanted objects that the load balancer has and the record does not.
func (b *planBuilder) findLost() []lblayout.Ref {
	var lost []lblayout.Ref
	if empty := (lblayout.Ref{Kind: lbrecord.BackendSet, Name: routing.EmptySet}); b.Input.Record == nil && b.Live.HasObject(empty) {
		lost = append(lost, empty)
	}
	for i := range b.Plan.Record.Objects {
		o := &b.Plan.Record.Objects[i]
		ref := lblayout.Ref{Kind: o.Kind, Name: o.Name}
		if !b.before.HasObject(o.Kind, o.Name) && b.Live.HasObject(ref) && !b.isLeft(ref) {
			lost = append(lost, ref)
		}
	}
	return lost
}

// reasonAddresses is the reason of endpoints that cannot become backends.
const reasonAddresses = "AddressesRefused"
