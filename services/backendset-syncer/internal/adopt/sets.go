package adopt

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// addDefault adds the default set that oke-gateway-api makes for a Gateway.
func (b *builder) addDefault(g *gatewayv1.Gateway) {
	name := g.Name + "-default"
	if _, exists := b.in.Live.Sets[name]; !exists || b.record.HasObject(lbrecord.BackendSet, name) {
		return
	}
	if _, others := b.usersOf(name); others {
		b.addFinding(objectTitle(lbrecord.BackendSet, name), "others use it, too: it stays")
		return
	}
	b.adoptObject(lbrecord.Object{Kind: lbrecord.BackendSet, Name: name, Key: b.in.Keys.DefaultSet}, "default of Gateway %s", nameOf(g))
}

// addSets adds the backend sets that only rules of HTTPRoutes use.
func (b *builder) addSets() {
	for _, name := range slices.Sorted(maps.Keys(b.in.Live.Sets)) {
		if b.record.HasObject(lbrecord.BackendSet, name) {
			continue
		}
		rules := b.rulesOf(name)
		if len(rules) == 0 {
			continue
		}
		object := objectTitle(lbrecord.BackendSet, name)
		if _, others := b.usersOf(name); others && b.ownKey(name) == "" { // the program cannot create another set with its own name
			b.addFinding(object, "others use it, too: it stays, and the program creates one of its own")
			continue
		}
		key := cmp.Or(b.setKey(rules), b.ownKey(name))
		if key == "" {
			b.adoptObject(lbrecord.Object{Kind: lbrecord.BackendSet, Name: name, Key: keyOfEarlier(name)},
				"set of %s: no rule wants this set alone, so the program removes it when nothing refers to it",
				strings.Join(rules, ", "))
			continue
		}
		b.adoptObject(lbrecord.Object{Kind: lbrecord.BackendSet, Name: name, Key: key}, "set of %s", strings.Join(rules, ", "))
	}
}

// rulesOf returns the adopted rules that forward to a set.
func (b *builder) rulesOf(set string) []string {
	var rules []string
	for policy := range b.adopted {
		for _, r := range b.in.Live.Policies[policy].Rules {
			if r.Set == set && r.Name != catchAll && b.replacesRule(policy, r.Name) {
				rules = append(rules, "rule "+r.Name)
			}
		}
	}
	slices.Sort(rules)
	return rules
}

// setKey returns the key that the program has for the set of rules of oke-gateway-api.
func (b *builder) setKey(rules []string) string {
	for _, rule := range rules {
		name := strings.TrimPrefix(rule, "rule ")
		index, ok := ruleIndex(name)
		if !ok {
			continue
		}
		for _, r := range b.in.Routes {
			if !hasAnnotatedRule(r, name) || index >= len(r.Spec.Rules) {
				continue
			}
			if key := b.in.Keys.Set(r, index); key != "" {
				return key
			}
		}
	}
	return ""
}

// ownKey returns the key that the program's plan has for a set.
func (b *builder) ownKey(set string) string {
	for _, o := range b.in.Keys.Own {
		if o.Kind == lbrecord.BackendSet && o.Name == set {
			return o.Key
		}
	}
	return ""
}

func hasAnnotatedRule(r *gatewayv1.HTTPRoute, rule string) bool {
	for _, rules := range annotatedRules(r) {
		if slices.Contains(rules, rule) {
			return true
		}
	}
	return false
}

// usersOf reports whether adopted listeners and rules use a set, and whether others do.
func (b *builder) usersOf(set string) (own, others bool) {
	others = b.in.PathRouted[set]
	for name, l := range b.in.Live.Listeners {
		if l.DefaultSet == set {
			own, others = own || b.own[name], others || !b.own[name]
		}
	}
	for policy, p := range b.in.Live.Policies {
		for _, r := range p.Rules {
			switch {
			case r.Set != set:
			case b.adopted[policy] == nil || !b.replacesRule(policy, r.Name):
				others = true
			case r.Name != catchAll:
				own = true
			}
		}
	}
	return own, others
}
