package lblayout

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// balancer is a load balancer that takes steps.
type balancer struct {
	*Live
}

func newRule(name, condition, set string) plan.Rule {
	return plan.Rule{Name: name, Condition: condition, Set: set}
}

func newBalancer() *balancer {
	return &balancer{&Live{
		Listeners: map[string]Listener{}, Policies: map[string]Policy{}, RuleSets: map[string]RuleSet{}, Hostnames: map[string]Hostname{},
		Certificates: map[string]bool{}, Sets: map[string]int{}, Uses: map[Ref]bool{},
	}}
}

// take makes a step, and checks what OCI checks: an object exists before others refer to it, and nothing in use is deleted.
func (b *balancer) take(t *testing.T, s *Step) {
	t.Helper()
	require.Equal(t, s.Action != Create, b.HasObject(s.Ref), "%s %s %s", s.Action, s.Kind, s.Name)
	if s.Action == Delete {
		require.False(t, b.Uses[s.Ref], "%s %s is in use", s.Kind, s.Name)
		b.delete(s.Ref)
	} else {
		b.put(t, s)
	}
	b.Uses = map[Ref]bool{}
	for _, l := range b.Listeners {
		for _, r := range refsOf(&l) {
			b.Uses[r] = true
		}
	}
	for _, p := range b.Policies {
		for _, r := range p.Rules {
			b.Uses[Ref{lbrecord.BackendSet, r.Set}] = true
		}
	}
}

func refsOf(l *Listener) []Ref {
	all := []Ref{{lbrecord.BackendSet, l.DefaultSet}}
	if l.Policy != "" {
		all = append(all, Ref{lbrecord.RoutingPolicy, l.Policy})
	}
	for _, h := range l.Hostnames {
		all = append(all, Ref{lbrecord.Hostname, h})
	}
	for _, r := range l.RuleSets {
		all = append(all, Ref{lbrecord.RuleSet, r})
	}
	if l.TLS != nil && l.TLS.Certificate != "" {
		all = append(all, Ref{lbrecord.Certificate, l.TLS.Certificate})
	}
	return all
}

func (b *balancer) delete(r Ref) {
	switch r.Kind {
	case lbrecord.Listener:
		delete(b.Listeners, r.Name)
	case lbrecord.RoutingPolicy:
		delete(b.Policies, r.Name)
	case lbrecord.RuleSet:
		delete(b.RuleSets, r.Name)
	case lbrecord.Hostname:
		delete(b.Hostnames, r.Name)
	case lbrecord.Certificate:
		delete(b.Certificates, r.Name)
	case lbrecord.BackendSet:
		delete(b.Sets, r.Name)
	}
}

func (b *balancer) put(t *testing.T, s *Step) {
	t.Helper()
	switch s.Kind {
	case lbrecord.Listener:
		for _, r := range refsOf(s.Listener) {
			require.True(t, b.HasObject(r), "listener %s needs %s %s", s.Name, r.Kind, r.Name)
		}
		for name, other := range b.Listeners {
			require.False(t, name != s.Name && other.Port == s.Listener.Port && !other.mayShare(s.Listener),
				"listeners %s and %s have the same port", s.Name, name)
		}
		b.Listeners[s.Name] = *s.Listener
	case lbrecord.RoutingPolicy:
		require.NotEmpty(t, s.Policy.Rules, "OCI has no empty policies")
		for _, r := range s.Policy.Rules {
			require.True(t, b.HasObject(Ref{lbrecord.BackendSet, r.Set}), "rule %s needs set %s", r.Name, r.Set)
		}
		b.Policies[s.Name] = *s.Policy
	case lbrecord.RuleSet:
		b.RuleSets[s.Name] = *s.RuleSet
	case lbrecord.Hostname:
		b.Hostnames[s.Name] = *s.Hostname
	case lbrecord.Certificate:
		b.Certificates[s.Name] = true
	case lbrecord.BackendSet:
		b.Sets[s.Name] = 0
	}
}

// converge makes one step after the other until none is left, and returns them as texts.
func (b *balancer) converge(t *testing.T, wanted *Wanted) []string {
	t.Helper()
	var all []string
	for range 100 {
		steps := NextSteps(b.Live, wanted)
		if len(steps) == 0 {
			require.Empty(t, FindBehind(b.Live, wanted))
			return all
		}
		all = append(all, fmt.Sprintf("%s %s %s", steps[0].Action, steps[0].Kind, steps[0].Name))
		b.take(t, &steps[0])
	}
	require.Fail(t, "it does not converge", all)
	return nil
}

// site is a layout with an HTTPS listener for a host, and an HTTP listener that redirects.
func site() *Wanted {
	return &Wanted{
		MaxSets: 16, MaxListeners: 16,
		Hostnames: []Hostname{{"host", "a.example.com"}}, Certificates: []Certificate{{Name: "one"}},
		Sets:         []Set{{Name: "empty"}, {Name: "chat"}},
		RuleSets:     []RuleSet{{Name: "redirect", Redirect: &plan.Redirect{Port: 443, Code: 301}}},
		RuleSetNames: map[string]bool{"redirect": true},
		Policies:     []Policy{{Name: "policy", Rules: []plan.Rule{newRule("r000_chat", "c", "chat")}}},
		Listeners: []Listener{
			{
				Name: "https", DefaultSet: "empty", Port: 443, Protocol: ProtocolHTTP, Hostnames: []string{"host"}, Policy: "policy",
				TLS: &TLS{Certificate: "one"},
			},
			{Name: "http", DefaultSet: "empty", Port: 80, Protocol: ProtocolHTTP, RuleSets: []string{"redirect"}},
		},
	}
}

func TestNext(t *testing.T) {
	t.Parallel()
	remove := func(w *Wanted, refs ...Ref) *Wanted {
		w.Delete = refs
		return w
	}
	tests := []struct {
		name   string
		change func(b *balancer) *Wanted // of a load balancer that has the site
		want   []string
	}{
		{"nothing", func(*balancer) *Wanted { return site() }, nil},
		{"a new certificate comes before the listener, and the old one goes last", func(*balancer) *Wanted {
			w := site()
			w.Certificates, w.Listeners[0].TLS.Certificate = []Certificate{{Name: "two"}}, "two"
			return remove(w, Ref{lbrecord.Certificate, "one"})
		}, []string{"Create certificates two", "Update listeners https", "Delete certificates one"}},
		{"a broken Secret keeps the certificate", func(*balancer) *Wanted {
			w := site()
			w.Certificates, w.Listeners[0].TLS = nil, &TLS{KeepCertificate: true}
			return w
		}, nil},
		{"a new set comes before its rule, and the old one goes last", func(*balancer) *Wanted {
			w := site()
			w.Sets[1].Name, w.Policies[0].Rules[0].Set = "embed", "embed"
			return remove(w, Ref{lbrecord.BackendSet, "chat"})
		}, []string{"Create backendSets embed", "Update routingPolicies policy", "Delete backendSets chat"}},
		{"the last route goes", func(*balancer) *Wanted {
			w := site()
			w.Sets, w.Policies, w.Listeners[0].Policy = w.Sets[:1], nil, ""
			return remove(w, Ref{lbrecord.BackendSet, "chat"}, Ref{lbrecord.RoutingPolicy, "policy"})
		}, []string{"Update listeners https", "Delete routingPolicies policy", "Delete backendSets chat"}},
		{"everything goes: listeners first", func(*balancer) *Wanted {
			return remove(&Wanted{}, Ref{lbrecord.BackendSet, "chat"}, Ref{lbrecord.BackendSet, "empty"}, Ref{lbrecord.Certificate, "one"},
				Ref{lbrecord.Hostname, "host"},
				Ref{lbrecord.Listener, "http"}, Ref{lbrecord.Listener, "https"}, Ref{lbrecord.RoutingPolicy, "policy"},
				Ref{lbrecord.RuleSet, "redirect"})
		}, []string{
			"Delete listeners http", "Delete listeners https", "Delete routingPolicies policy", "Delete ruleSets redirect",
			"Delete hostnames host", "Delete certificates one",
			"Delete backendSets chat", "Delete backendSets empty",
		}},
		{"another redirect", func(*balancer) *Wanted {
			w := site()
			w.RuleSets[0].Redirect = &plan.Redirect{Port: 8443, Code: 301}
			return w
		}, []string{"Update ruleSets redirect"}},
		{"somebody has changed the rule set", func(b *balancer) *Wanted {
			b.RuleSets["redirect"] = RuleSet{Name: "redirect", Rules: 3}
			return site()
		}, []string{"Update ruleSets redirect"}},
		{"somebody has changed a hostname", func(b *balancer) *Wanted {
			b.Hostnames["host"] = Hostname{"host", "b.example.com"}
			return site()
		}, []string{"Update hostnames host"}},
		{"the case of a hostname does not matter", func(b *balancer) *Wanted {
			b.Hostnames["host"] = Hostname{"host", "A.example.com"}
			return site()
		}, nil},
		{"somebody has deleted a listener", func(b *balancer) *Wanted {
			delete(b.Listeners, "http")
			return site()
		}, []string{"Create listeners http"}},
		{"an idle timeout", func(*balancer) *Wanted {
			w := site()
			w.Listeners[1].IdleTimeout = 900
			return w
		}, []string{"Update listeners http"}},
		{"the fields of others stay", func(b *balancer) *Wanted {
			l := b.Listeners["http"]
			l.IdleTimeout, l.RuleSets = 77, []string{"terraform", "redirect"}
			b.RuleSets["terraform"] = RuleSet{Name: "terraform"}
			b.Listeners["http"] = l
			s := b.Listeners["https"]
			s.TLS = &TLS{Certificate: "one", Protocols: []string{"TLSv1.3"}, CipherSuite: "mine"}
			b.Listeners["https"] = s
			return site()
		}, nil},
		{"the order of TLS protocols does not matter", func(b *balancer) *Wanted {
			w := site()
			w.Listeners[0].TLS.Protocols = []string{"TLSv1.2", "TLSv1.3"}
			s := b.Listeners["https"]
			s.TLS = &TLS{Certificate: "one", Protocols: []string{"TLSv1.3", "TLSv1.2"}}
			b.Listeners["https"] = s
			return w
		}, nil},
		{"a port that begins to use TLS loses its other listeners first", func(b *balancer) *Wanted {
			b.Listeners["more"] = Listener{
				Name: "more", DefaultSet: "empty", Port: 80, Protocol: ProtocolHTTP, Hostnames: []string{"host"},
				IdleTimeout: DefaultIdleTimeout,
			}
			w := site()
			w.RuleSets = nil
			w.Listeners[1] = Listener{Name: "http", DefaultSet: "empty", Port: 80, Protocol: ProtocolHTTP, TLS: &TLS{Certificate: "one"}}
			w.Listeners = append(w.Listeners,
				Listener{
					Name: "more", DefaultSet: "empty", Port: 80, Protocol: ProtocolHTTP, Hostnames: []string{"host"},
					TLS: &TLS{Certificate: "one"},
				})
			return remove(w, Ref{lbrecord.RuleSet, "redirect"})
		}, []string{"Delete listeners more", "Update listeners http", "Create listeners more", "Delete ruleSets redirect"}},
		{"a listener that is not wanted leaves the port to another one", func(*balancer) *Wanted {
			w := site()
			w.Listeners[1].Name = "other"
			return remove(w, Ref{lbrecord.Listener, "http"})
		}, []string{"Delete listeners http", "Create listeners other"}},
		{"a full load balancer deletes a listener first", func(*balancer) *Wanted {
			w := site()
			w.RuleSets, w.MaxListeners, w.Listeners[1] = nil, 2, Listener{
				Name: "new", DefaultSet: "empty", Port: 81, Protocol: ProtocolHTTP,
			}
			return remove(w, Ref{lbrecord.Listener, "http"}, Ref{lbrecord.RuleSet, "redirect"})
		}, []string{"Delete listeners http", "Create listeners new", "Delete ruleSets redirect"}},
		{"a full load balancer deletes the retired set that is free", func(b *balancer) *Wanted {
			b.Sets["old"], b.Sets["older"] = 2, 1
			w := site()
			w.MaxSets, w.Retired = 4, []string{"older", "old"}
			w.Sets = append(w.Sets, Set{Name: "new"})
			return w
		}, []string{"Delete backendSets older", "Create backendSets new"}},
		{"two rules swap their sets at the limit", func(b *balancer) *Wanted {
			rules := []plan.Rule{newRule("r000_chat", "c", "chat"), newRule("r001_old", "d", "old")}
			b.Policies["policy"] = Policy{Name: "policy", Rules: rules}
			b.Sets["old"], b.Uses[Ref{lbrecord.BackendSet, "old"}] = 0, true
			w := site()
			w.MaxSets, w.Retired = 3, []string{"old"}
			w.Sets = append(w.Sets, Set{Name: "new"})
			w.Policies[0].Rules = []plan.Rule{
				newRule("r000_chat", "c", "chat"), newRule("r001_chat", "d", "chat"), newRule("r002_new", "e", "new"),
			}
			return remove(w, Ref{lbrecord.BackendSet, "old"})
		}, []string{"Update routingPolicies policy", "Delete backendSets old", "Create backendSets new", "Update routingPolicies policy"}},
		{"a set of others in use stays", func(b *balancer) *Wanted {
			b.Sets["terraform"] = 1
			b.Listeners["terraform"] = Listener{Name: "terraform", DefaultSet: "terraform", Port: 99, Protocol: ProtocolHTTP}
			return site()
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBalancer()
			first := b.converge(t, site())
			assert.True(t, slices.IsSortedFunc(first, func(x, y string) int { return phase(x) - phase(y) }),
				"objects come before those that refer to them: %v", first)
			assert.Equal(t, DefaultIdleTimeout, b.Listeners["http"].IdleTimeout)
			wanted := tt.change(b)
			assert.Equal(t, tt.want, b.converge(t, wanted))
		})
	}
}

// phase returns the dependency phase of a creation.
func phase(step string) int {
	return slices.IndexFunc([]string{
		"hostnames", "certificates", "backendSets", "ruleSets", "routingPolicies", "listeners",
	}, func(kind string) bool {
		var action, of, name string
		_, err := fmt.Sscan(step, &action, &of, &name)
		return err == nil && of == kind
	})
}

// TestFirstCertificate has a listener whose Secret was never valid: there is nothing to keep, and nothing to create.
func TestFirstCertificate(t *testing.T) {
	t.Parallel()
	w := &Wanted{
		MaxSets: 16, MaxListeners: 16, Sets: []Set{{Name: "empty"}},
		Listeners: []Listener{{Name: "https", DefaultSet: "empty", Port: 443, Protocol: ProtocolHTTP, TLS: &TLS{KeepCertificate: true}}},
	}
	live := &Live{Sets: map[string]int{"empty": 0}}
	assert.Empty(t, NextSteps(live, w))
	if behind := FindBehind(live, w); assert.Len(t, behind, 1) {
		assert.Equal(t, Ref{lbrecord.Listener, "https"}, behind[0].Ref)
	}
}

// TestNoRoomForASet has a full load balancer without a retired set: nothing is created, and nothing of others is deleted.
func TestNoRoomForASet(t *testing.T) {
	t.Parallel()
	live := &Live{Sets: map[string]int{"terraform": 1, "used": 1}, Uses: map[Ref]bool{{lbrecord.BackendSet, "used"}: true}}
	w := &Wanted{
		MaxSets: 2, MaxListeners: 16, Sets: []Set{{Name: "new"}}, Retired: []string{"used"},
		Policies: []Policy{{Name: "policy", Rules: []plan.Rule{newRule("r000", "c", "new")}}},
	}
	assert.Empty(t, NextSteps(live, w))
}

// TestForeignPorts has listeners of others on the wanted port: nothing is deleted for it.
func TestForeignPorts(t *testing.T) {
	t.Parallel()
	live := &Live{
		Sets: map[string]int{"empty": 0}, Listeners: map[string]Listener{"terraform": {Name: "terraform", Port: 80, Protocol: "TCP"}},
	}
	w := &Wanted{
		MaxSets: 16, MaxListeners: 16, Sets: []Set{{Name: "empty"}},
		Listeners: []Listener{{Name: "http", DefaultSet: "empty", Port: 80, Protocol: ProtocolHTTP}},
	}
	assert.Empty(t, NextSteps(live, w))
}

func TestOver(t *testing.T) {
	t.Parallel()
	own, adopted, foreign := newRule("r000_a_b", "c", "s"), newRule("p0000_x", "d", "s"), newRule("terraform", "e", "s")
	tests := map[string]struct{ live, wanted, want []plan.Rule }{
		"rules of others before the program's stay there": {[]plan.Rule{foreign, own}, []plan.Rule{own}, []plan.Rule{foreign, own}},
		"and those behind come last": {[]plan.Rule{own, foreign}, []plan.Rule{own, newRule("r001_a_b", "f", "s")},
			[]plan.Rule{own, newRule("r001_a_b", "f", "s"), foreign}},
		"adopted rules are replaced in their place": {[]plan.Rule{foreign, adopted}, []plan.Rule{own}, []plan.Rule{foreign, own}},
		"the program's rules go":                    {[]plan.Rule{own, foreign}, nil, []plan.Rule{foreign}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Policy{Name: "p", Rules: tt.wanted, Adopted: []string{adopted.Name}}
			assert.Equal(t, tt.want, p.mergeForeign(&Policy{Name: "p", Rules: tt.live}).Rules)
		})
	}
}
