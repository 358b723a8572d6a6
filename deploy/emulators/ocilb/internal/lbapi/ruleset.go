package lbapi

import "slices"

// RuleSet is a rule set. Its request form has the same fields; Name is only in requests that create it.
type RuleSet struct {
	Name  string `json:"name"`
	Items []Rule `json:"items"`
}

// ListenerRule is a rule of a listener.
type ListenerRule struct {
	Rule        Rule   `json:"rule"`
	RuleSetName string `json:"ruleSetName"`
}

// PutRuleSet creates a rule set, or replaces its rules.
func (lb *LoadBalancer) PutRuleSet(s *RuleSet, create bool, limits Limits) *Error {
	if err := present(lb.RuleSets, "rule set", s.Name, create); err != nil {
		return err
	}
	var c check
	c.has(s.Name != "", "name")
	c.that(len(s.Name) <= maxName && plainName.MatchString(s.Name), "Invalid rule set name '%.60s'", s.Name)
	c.has(len(s.Items) > 0, "items")
	c.limit(len(s.Items), limits.RulesPerSet, "rules-per-rule-set")
	if c.err != nil {
		return c.err
	}
	set := &RuleSet{Name: s.Name, Items: slices.Clone(s.Items)}
	for i := range set.Items {
		c.also(set.Items[i].validate())
	}
	if c.err != nil {
		return c.err
	}
	lb.RuleSets[s.Name] = set
	rules := 0
	for _, other := range lb.RuleSets {
		rules += len(other.Items)
	}
	c.limit(rules, limits.Rules, "rules-per-load-balancer")
	for _, l := range Sorted(lb.Listeners) {
		if slices.Contains(l.RuleSetNames, s.Name) {
			c.also(l.validateRules(lb))
		}
	}
	return c.err
}

// DeleteRuleSet removes a rule set that no listener uses.
func (lb *LoadBalancer) DeleteRuleSet(name string) *Error {
	if lb.RuleSets[name] == nil {
		return NotFound("rule set", name)
	}
	if err := lb.usedBy("rule set", name, func(l *Listener) bool { return slices.Contains(l.RuleSetNames, name) }); err != nil {
		return err
	}
	delete(lb.RuleSets, name)
	return nil
}

// RulesOf returns the rules of a listener in the order in which they apply: access control, methods, redirects, headers of
// requests, headers of responses, and then the others. The documentation has no place for redirects.
func (lb *LoadBalancer) RulesOf(l *Listener) []ListenerRule {
	rules := []ListenerRule{}
	for _, name := range l.RuleSetNames {
		if set := lb.RuleSets[name]; set != nil {
			for i := range set.Items {
				rules = append(rules, ListenerRule{Rule: set.Items[i], RuleSetName: name})
			}
		}
	}
	slices.SortStableFunc(rules, func(a, b ListenerRule) int { return rank(&a.Rule) - rank(&b.Rule) })
	return rules
}

func rank(r *Rule) int {
	groups := [][]string{
		{RuleAllow},
		{RuleMethods},
		{RuleRedirect},
		{RuleAddRequestHeader, RuleExtendRequestHeader, RuleRemoveRequestHeader},
		{RuleAddResponseHeader, RuleExtendResponseHeader, RuleRemoveResponseHeader},
	}
	i := slices.IndexFunc(groups, func(actions []string) bool { return slices.Contains(actions, r.Action) })
	if i < 0 {
		return len(groups)
	}
	return i
}

// validateRules checks the rule sets that a listener refers to.
func (l *Listener) validateRules(lb *LoadBalancer) *Error {
	var c check
	for i, name := range l.RuleSetNames {
		c.that(lb.RuleSets[name] != nil, "Listener '%s' refers to rule set '%.60s', which does not exist in load balancer %s", l.Name, name, lb.ID)
		c.that(!slices.Contains(l.RuleSetNames[:i], name), "Rule set '%s' is listed twice in listener '%s'", name, l.Name)
	}
	seen := map[string]bool{}
	for _, r := range lb.RulesOf(l) {
		key := r.Rule.uniqueness()
		c.that(key == "" || !seen[key], "Listener '%s' has more than one rule %s", l.Name, key)
		seen[key] = true
	}
	return c.err
}
