package lbapi

import "fairlead.dev/deploy/emulators/ocilb/internal/routing"

// RoutingPolicy is a routing policy. Its request form has the same fields; Name is only in requests that create it.
type RoutingPolicy struct {
	Name                     string        `json:"name"`
	ConditionLanguageVersion string        `json:"conditionLanguageVersion"`
	Rules                    []RoutingRule `json:"rules"`
}

// RoutingRule is a rule of a routing policy.
type RoutingRule struct {
	Name      string   `json:"name"`
	Condition string   `json:"condition"`
	Actions   []Action `json:"actions"`
}

// Action is what a rule does.
type Action struct {
	Name           string `json:"name"`
	BackendSetName string `json:"backendSetName"`
}

// ForwardToBackendSet is the name of the only action.
const ForwardToBackendSet = "FORWARD_TO_BACKENDSET"

const conditionVersion = "V1"

// Target returns the name of the backend set of a rule.
func (r *RoutingRule) Target() string {
	if len(r.Actions) == 0 {
		return ""
	}
	return r.Actions[0].BackendSetName
}

func (p *RoutingPolicy) targets() []string {
	if p == nil {
		return nil
	}
	names := make([]string, 0, len(p.Rules))
	for i := range p.Rules {
		names = append(names, p.Rules[i].Target())
	}
	return names
}

// PutRoutingPolicy creates a routing policy, or replaces its rules.
func (lb *LoadBalancer) PutRoutingPolicy(p *RoutingPolicy, create bool) *Error {
	if err := present(lb.RoutingPolicies, "routing policy", p.Name, create); err != nil {
		return err
	}
	policy := *p
	if old := lb.RoutingPolicies[p.Name]; old != nil && policy.ConditionLanguageVersion == "" {
		policy.ConditionLanguageVersion = old.ConditionLanguageVersion
	}
	if err := policy.Validate(lb); err != nil {
		return err
	}
	lb.RoutingPolicies[p.Name] = &policy
	var c check
	c.limit(len(lb.RoutingPolicies), maxObjects, "routing-policies-per-load-balancer")
	c.also(lb.checkCookies(func(l *Listener) bool { return valueOr(l.RoutingPolicyName, "") == p.Name }))
	return c.err
}

// DeleteRoutingPolicy removes a routing policy that no listener uses.
func (lb *LoadBalancer) DeleteRoutingPolicy(name string) *Error {
	if lb.RoutingPolicies[name] == nil {
		return NotFound("routing policy", name)
	}
	if err := lb.usedBy("routing policy", name, func(l *Listener) bool { return valueOr(l.RoutingPolicyName, "") == name }); err != nil {
		return err
	}
	delete(lb.RoutingPolicies, name)
	return nil
}

// Validate checks a routing policy of a request.
func (p *RoutingPolicy) Validate(lb *LoadBalancer) *Error {
	var c check
	c.has(p.Name != "", "name")
	c.that(len(p.Name) <= maxName && ruleName.MatchString(p.Name), "Invalid routing policy name '%.60s'", p.Name)
	c.that(p.ConditionLanguageVersion == conditionVersion, "Invalid conditionLanguageVersion '%.60s'", p.ConditionLanguageVersion)
	c.has(len(p.Rules) > 0, "rules")
	names, conditions := map[string]bool{}, 0
	for i := range p.Rules {
		r := &p.Rules[i]
		c.that(len(r.Name) <= maxName && ruleName.MatchString(r.Name) && !names[r.Name],
			"Invalid rule name '%.60s' in routing policy '%s'", r.Name, p.Name)
		names[r.Name] = true
		n, err := r.validate(p.Name, lb)
		c.also(err)
		conditions += n
	}
	c.that(conditions <= routing.MaxConditions, "Routing policy '%s' has more than %d conditions", p.Name, routing.MaxConditions)
	return c.err
}

// validate checks the condition and the actions of a rule, and returns the number of its conditions.
func (r *RoutingRule) validate(policy string, lb *LoadBalancer) (conditions int, _ *Error) {
	parsed, err := routing.Parse(r.Condition)
	if err != nil {
		return 0, invalid("Invalid condition of rule '%s' in routing policy '%s': %s", r.Name, policy, err)
	}
	if len(r.Actions) != 1 || r.Actions[0].Name != ForwardToBackendSet {
		return 0, invalid("Rule '%s' in routing policy '%s' needs one action %s", r.Name, policy, ForwardToBackendSet)
	}
	if set := r.Actions[0].BackendSetName; lb.BackendSets[set] == nil {
		return 0, invalid("Routing Policy '%s' contains a rule referencing BackendSet '%s' which does not exist in load balancer %s", policy, set, lb.ID)
	}
	return parsed.Comparisons(), nil
}
