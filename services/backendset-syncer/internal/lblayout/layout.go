// Package lblayout decides how the listeners of a load balancer, and what they refer to, become what Gateways want.
//
// NextSteps compares the wanted layout with the live one, and returns the steps that are possible now, in this order:
//
//  1. create hostnames, certificates and backend sets
//  2. create and change rule sets and routing policies, whose backend sets exist
//  3. create and change listeners, whose objects exist
//  4. delete listeners, then objects that nothing refers to
//
// A step that needs an object which does not exist yet is not returned: the caller makes one write at a time, reads the load balancer,
// and asks again. So a certificate is replaced without a gap: the new one is created, the listener changes, the old one is deleted.
//
// Only wanted objects are created and changed, and only objects of Wanted.Delete are deleted. A change keeps what the layout does not
// decide: other rule sets of a listener, its connection configuration, rules of others in a routing policy.
package lblayout

import (
	"regexp"
	"slices"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// Listener is a listener of a load balancer.
type Listener struct {
	Name       string
	DefaultSet string
	Port       int
	Protocol   string
	Hostnames  []string // names of hostname objects
	Policy     string   // empty: none
	RuleSets   []string // of a wanted listener: those of the program
	TLS        *TLS
	// IdleTimeout is in seconds. 0: a wanted listener keeps the one that it has, and a new one gets DefaultIdleTimeout.
	IdleTimeout int
}

// TLS is the TLS configuration of a listener.
type TLS struct {
	Certificate    string   // name of a certificate of the load balancer
	CertificateIDs []string // OCIDs of certificates of the certificates service
	// Protocols and CipherSuite are empty if a wanted listener keeps those that it has.
	Protocols   []string
	CipherSuite string
	// KeepCertificate means that a wanted listener keeps its certificate, because the Secret of another one cannot be used.
	KeepCertificate bool
}

// DefaultIdleTimeout is the idle timeout of new listeners in seconds. The service has 60: a model that needs longer for the first token
// of a long prompt would lose its requests.
const DefaultIdleTimeout = 600

// Protocols of listeners.
const (
	ProtocolHTTP  = "HTTP"
	ProtocolHTTP2 = "HTTP2"
)

// Policy is a routing policy. OCI has no empty policies: one without rules has those of others.
type Policy struct {
	Name  string
	Rules []plan.Rule
	// Adopted are the names of rules of an earlier controller that the rules replace.
	Adopted []string
}

// RuleSet is a rule set with a redirect of all requests.
type RuleSet struct {
	Name     string
	Redirect *plan.Redirect // nil: a live rule set with other rules
	Rules    int            // of a live rule set
}

// Hostname is a hostname object.
type Hostname struct{ Name, Hostname string }

// Certificate is a certificate with its key.
type Certificate struct{ Name, Public, Private, Authority string }

// Set is a backend set to create. Actors write its backends.
type Set struct {
	Name   string
	Health plan.HealthChecker
}

// Live is a load balancer as it was read.
type Live struct {
	Listeners    map[string]Listener
	Policies     map[string]Policy
	RuleSets     map[string]RuleSet
	Hostnames    map[string]Hostname
	Certificates map[string]bool
	Sets         map[string]int // number of backends
	// Uses are the backend sets and certificates that anything refers to.
	Uses map[Ref]bool
}

// Ref names an object.
type Ref struct {
	Kind lbrecord.Kind
	Name string
}

// Wanted is the wanted layout.
type Wanted struct {
	Listeners    []Listener
	Policies     []Policy
	RuleSets     []RuleSet
	Hostnames    []Hostname
	Certificates []Certificate
	Sets         []Set
	// Delete are objects of the record that are not needed.
	Delete []Ref
	// Retired are backend sets that drain, the longest first. They are deleted if there is no room for a new set.
	Retired []string
	// RuleSetNames are the rule sets of the record: others of a listener stay.
	RuleSetNames map[string]bool
	MaxSets      int
	MaxListeners int
}

// Action is what a step does.
type Action string

// Actions.
const (
	Create Action = "Create"
	Update Action = "Update"
	Delete Action = "Delete"
)

// Step is one write. The object of its kind is set, unless it is deleted.
type Step struct {
	Ref
	Action Action

	Listener    *Listener
	Policy      *Policy
	RuleSet     *RuleSet
	Hostname    *Hostname
	Certificate *Certificate
	Set         *Set
	Backends    []plan.Backend // of a new set
}

// ownRule is the form of the names of rules of the program: see package routing.
var ownRule = regexp.MustCompile(`^r\d{3,}_`)

// IsOwnRule reports whether a rule of a routing policy has a name that only the program gives.
func IsOwnRule(name string) bool { return ownRule.MatchString(name) }

// NextSteps returns the steps that are possible now. An empty result means that the layout is as it is wanted, or that objects are missing
// whose creation has to be retried.
func NextSteps(live *Live, wanted *Wanted) []Step {
	d := &stepBuilder{live: live, wanted: wanted}
	for _, s := range FindBehind(live, wanted) {
		switch s.Kind {
		case lbrecord.BackendSet:
			d.createSet(s)
		case lbrecord.RoutingPolicy:
			d.applyPolicy(s)
		case lbrecord.Listener:
			d.applyListener(s)
		default:
			d.steps = append(d.steps, s)
		}
	}
	d.deleteUnneeded()
	return d.steps
}

type stepBuilder struct {
	live   *Live
	wanted *Wanted
	steps  []Step
	full   bool // there is no room for a new backend set
}

func (d *stepBuilder) deleteObject(kind lbrecord.Kind, name string) {
	d.steps = append(d.steps, Step{Ref: Ref{Kind: kind, Name: name}, Action: Delete})
}

// createSet creates a backend set, or makes room for it.
func (d *stepBuilder) createSet(s Step) {
	switch {
	case d.full:
	case len(d.live.Sets) < d.wanted.MaxSets:
		d.steps = append(d.steps, s)
	default:
		d.full = true
		d.makeRoom()
	}
}

// makeRoom deletes the retired set that has drained longest.
func (d *stepBuilder) makeRoom() {
	for _, name := range d.wanted.Retired {
		if _, found := d.live.Sets[name]; found && !d.live.Uses[Ref{lbrecord.BackendSet, name}] {
			d.deleteObject(lbrecord.BackendSet, name)
			return
		}
	}
}

// applyPolicy creates or changes a routing policy.
func (d *stepBuilder) applyPolicy(s Step) {
	have := d.live.Policies[s.Name]
	next := s.Policy
	if slices.ContainsFunc(next.Rules, func(r plan.Rule) bool { _, found := d.live.Sets[r.Set]; return !found }) {
		if !d.full {
			return
		}
		if next = d.partialPolicy(next, &have); len(next.Rules) == 0 {
			return
		}
	}
	s.Policy = next.mergeForeign(&have)
	if len(s.Policy.Rules) > 0 && !slices.Equal(s.Policy.Rules, have.Rules) { // OCI has no empty policies
		d.steps = append(d.steps, s)
	}
}

// partialPolicy returns a policy that needs no missing set: a rule whose set does not exist keeps the set that the rule with its condition
// has, or is left out. So sets that other rules no longer need become free, and there is room for the missing ones.
func (d *stepBuilder) partialPolicy(p, have *Policy) *Policy {
	now := map[string]string{}
	for _, r := range have.Rules {
		now[r.Condition] = r.Set
	}
	partial := &Policy{Name: p.Name, Adopted: p.Adopted}
	for _, r := range p.Rules {
		if _, found := d.live.Sets[r.Set]; !found {
			r.Set = now[r.Condition]
		}
		if r.Set != "" {
			partial.Rules = append(partial.Rules, r)
		}
	}
	return partial
}

// mergeForeign returns the policy with the rules of others that it has: those before the first rule of the program stay there, the others
// come last.
func (p *Policy) mergeForeign(have *Policy) *Policy {
	next := &Policy{Name: p.Name}
	var behind []plan.Rule
	seen := false
	for _, r := range have.Rules {
		switch {
		case IsOwnRule(r.Name) || slices.Contains(p.Adopted, r.Name):
			seen = true
		case seen:
			behind = append(behind, r)
		default:
			next.Rules = append(next.Rules, r)
		}
	}
	next.Rules = append(append(next.Rules, p.Rules...), behind...)
	return next
}

// deletionOrder is the order in which objects are deleted: none before those that refer to it.
var deletionOrder = []lbrecord.Kind{
	lbrecord.Listener, lbrecord.RoutingPolicy, lbrecord.RuleSet, lbrecord.Hostname, lbrecord.Certificate, lbrecord.BackendSet,
}

// deleteUnneeded deletes what is not needed: listeners first, then objects that nothing refers to.
func (d *stepBuilder) deleteUnneeded() {
	for _, kind := range deletionOrder {
		for _, r := range d.wanted.Delete {
			if r.Kind == kind && d.live.HasObject(r) && !d.live.Uses[r] && !d.isPlanned(r.Kind, r.Name) {
				d.deleteObject(r.Kind, r.Name)
			}
		}
	}
}

// HasObject reports whether the load balancer has an object.
func (l *Live) HasObject(r Ref) bool {
	found := false
	switch r.Kind {
	case lbrecord.Listener:
		_, found = l.Listeners[r.Name]
	case lbrecord.RoutingPolicy:
		_, found = l.Policies[r.Name]
	case lbrecord.RuleSet:
		_, found = l.RuleSets[r.Name]
	case lbrecord.Hostname:
		_, found = l.Hostnames[r.Name]
	case lbrecord.Certificate:
		found = l.Certificates[r.Name]
	case lbrecord.BackendSet:
		_, found = l.Sets[r.Name]
	}
	return found
}
