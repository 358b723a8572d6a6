package gatewayplan

import (
	"slices"
	"strings"

	"fairlead.dev/services/backendset-syncer/internal/gatewayplan/routing"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// maxRedirects is OCI's limit of rules in the rule sets of a load balancer. Each redirect is one rule.
const maxRedirects = 50

// redirectsLeft returns the redirects for which rule sets of others leave room.
func (b *planBuilder) redirectsLeft() int {
	others := 0
	for name, r := range b.Live.RuleSets {
		if !b.before.HasObject(lbrecord.RuleSet, name) {
			others += max(r.Rules, 1)
		}
	}
	return max(maxRedirects-others, 1) // 0 would be no limit
}

// servedBy returns the namespaces whose rules the load balancer serves on a listener, and that still have a route there.
func (b *planBuilder) servedBy(l *Listener) []string {
	o := b.before.FindByKey(lbrecord.Listener, l.key)
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Namespaces), func(namespace string) bool {
		return !slices.ContainsFunc(l.routes, func(r *routing.Route) bool { return r.Namespace == namespace })
	})
}

// isRedirected reports whether the load balancer redirects all requests of a listener.
func (b *planBuilder) isRedirected(l *Listener) bool {
	o := b.before.FindByKey(lbrecord.Listener, l.key)
	return o != nil &&
		slices.ContainsFunc(b.Live.Listeners[o.Name].RuleSets, func(name string) bool { return b.before.HasObject(lbrecord.RuleSet, name) })
}

// conditionsOfOthers returns the number of conditions of rules of others in a routing policy: OCI's limit is that of the policy.
func (b *planBuilder) conditionsOfOthers(policy string) int {
	n := 0
	for _, r := range b.foreignRules(policy) {
		n += countConditions(r.Condition)
	}
	return n
}

// countConditions returns the number of conditions of a rule of others, with its groups. It may count too many, as a literal can have a
// comma.
func countConditions(condition string) int {
	return 1 + strings.Count(condition, ",") + max(strings.Count(condition, "any(")+strings.Count(condition, "all(")-1, 0)
}
