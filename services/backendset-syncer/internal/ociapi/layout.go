package ociapi

import (
	"slices"
	"strings"

	"github.com/oracle/oci-go-sdk/v65/common"
	"github.com/oracle/oci-go-sdk/v65/loadbalancer"

	"fairlead.dev/services/backendset-syncer/internal/lblayout"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

// addressesOf returns the addresses of a load balancer.
func addressesOf(lb *loadbalancer.LoadBalancer) []string {
	var addresses []string
	for _, a := range lb.IpAddresses {
		if a.IpAddress != nil {
			addresses = append(addresses, *a.IpAddress)
		}
	}
	return addresses
}

// LiveLayout returns the listeners of the load balancer and what they refer to.
func (l *LoadBalancer) LiveLayout() *lblayout.Live {
	raw := &l.raw
	live := &lblayout.Live{
		Listeners: map[string]lblayout.Listener{}, Policies: map[string]lblayout.Policy{}, RuleSets: map[string]lblayout.RuleSet{},
		Hostnames:    map[string]lblayout.Hostname{},
		Certificates: map[string]bool{}, Sets: l.SetSizes(), Uses: referencedObjects(raw),
	}
	for name := range raw.Listeners {
		live.Listeners[name] = listenerOf(raw.Listeners[name])
	}
	for name, p := range raw.RoutingPolicies {
		live.Policies[name] = policyOf(p)
	}
	for name, r := range raw.RuleSets {
		live.RuleSets[name] = lblayout.RuleSet{Name: name, Redirect: redirectOf(r.Items), Rules: len(r.Items)}
	}
	for name, h := range raw.Hostnames {
		live.Hostnames[name] = lblayout.Hostname{Name: name, Hostname: valueOf(h.Hostname)}
	}
	for name := range raw.Certificates {
		live.Certificates[name] = true
	}
	return live
}

func listenerOf(raw loadbalancer.Listener) lblayout.Listener {
	l := lblayout.Listener{
		Name: valueOf(raw.Name), DefaultSet: valueOf(raw.DefaultBackendSetName), Port: valueOf(raw.Port), Protocol: valueOf(raw.Protocol),
		Hostnames: raw.HostnameNames, Policy: valueOf(raw.RoutingPolicyName), RuleSets: raw.RuleSetNames,
	}
	if c := raw.ConnectionConfiguration; c != nil {
		l.IdleTimeout = int(valueOf(c.IdleTimeout))
	}
	if s := raw.SslConfiguration; s != nil {
		l.TLS = &lblayout.TLS{
			Certificate: valueOf(s.CertificateName), CertificateIDs: s.CertificateIds, Protocols: s.Protocols,
			CipherSuite: valueOf(s.CipherSuiteName),
		}
	}
	return l
}

func policyOf(raw loadbalancer.RoutingPolicy) lblayout.Policy {
	p := lblayout.Policy{Name: valueOf(raw.Name)}
	for _, r := range raw.Rules {
		rule := plan.Rule{Name: valueOf(r.Name), Condition: valueOf(r.Condition)}
		for _, action := range r.Actions {
			if forward, ok := action.(loadbalancer.ForwardToBackendSet); ok {
				rule.Set = valueOf(forward.BackendSetName)
			}
		}
		p.Rules = append(p.Rules, rule)
	}
	return p
}

// allPaths is the path of a redirect of all requests.
const allPaths = "/"

// Values of redirects that keep a part of the request. Documents disagree about the defaults that reads return.
var (
	keepHost  = []string{"", "{host}"}
	keepPath  = []string{"", "{path}", "/{path}"}
	keepQuery = []string{"", "{query}", "?{query}"}
)

// redirectOf returns the redirect of a rule set that has nothing else than a redirect of all requests to HTTPS, nil otherwise.
func redirectOf(items []loadbalancer.Rule) *plan.Redirect {
	if len(items) != 1 {
		return nil
	}
	r, ok := items[0].(loadbalancer.RedirectRule)
	if !ok || r.RedirectUri == nil || len(r.Conditions) != 1 {
		return nil
	}
	c, ok := r.Conditions[0].(loadbalancer.PathMatchCondition)
	if !ok || valueOf(c.AttributeValue) != allPaths || c.Operator != loadbalancer.PathMatchConditionOperatorForceLongestPrefixMatch {
		return nil
	}
	u := r.RedirectUri
	if !strings.EqualFold(valueOf(u.Protocol), "HTTPS") || !slices.Contains(keepHost, valueOf(u.Host)) ||
		!slices.Contains(keepPath, valueOf(u.Path)) || !slices.Contains(keepQuery, valueOf(u.Query)) {
		return nil
	}
	return &plan.Redirect{Port: valueOf(u.Port), Code: valueOf(r.ResponseCode)}
}

// referencedObjects returns the objects that other objects of a load balancer refer to.
func referencedObjects(lb *loadbalancer.LoadBalancer) map[lblayout.Ref]bool {
	referenced := map[lblayout.Ref]bool{}
	addRefs := func(kind lbrecord.Kind, names ...string) {
		for _, name := range names {
			referenced[lblayout.Ref{Kind: kind, Name: name}] = true
		}
	}
	for _, l := range lb.Listeners {
		addRefs(lbrecord.BackendSet, valueOf(l.DefaultBackendSetName))
		addRefs(lbrecord.RoutingPolicy, valueOf(l.RoutingPolicyName))
		addRefs(lbrecord.RuleSet, l.RuleSetNames...)
		addRefs(lbrecord.Hostname, l.HostnameNames...)
		if l.SslConfiguration != nil {
			addRefs(lbrecord.Certificate, valueOf(l.SslConfiguration.CertificateName))
		}
	}
	for _, s := range lb.BackendSets {
		if s.SslConfiguration != nil {
			addRefs(lbrecord.Certificate, valueOf(s.SslConfiguration.CertificateName))
		}
	}
	for _, p := range lb.RoutingPolicies {
		for _, r := range policyOf(p).Rules {
			addRefs(lbrecord.BackendSet, r.Set)
		}
	}
	for _, s := range lb.PathRouteSets {
		for _, r := range s.PathRoutes {
			addRefs(lbrecord.BackendSet, valueOf(r.BackendSetName))
		}
	}
	return referenced
}

// NewStep returns the write of a step.
func (l *LoadBalancer) NewStep(s *lblayout.Step) *Write {
	w := &Write{loadBalancer: l.ID, object: s.Name, etag: l.ETag, action: s.Action, kind: s.Kind}
	if s.Action == lblayout.Delete {
		return w
	}
	switch s.Kind {
	case lbrecord.Listener:
		w.body = l.listenerBody(s)
	case lbrecord.RoutingPolicy:
		w.body = policyBody(s)
	case lbrecord.RuleSet:
		w.body = ruleSetBody(s)
	case lbrecord.Hostname:
		w.body = hostnameBody(s)
	case lbrecord.Certificate:
		w.body = certificateBody(s.Certificate)
	case lbrecord.BackendSet:
		w.body = setBody(s)
	}
	return w
}

// listenerBody returns a listener with the fields that it has and the layout does not decide. Fields that are left out would be removed.
func (l *LoadBalancer) listenerBody(s *lblayout.Step) any {
	want := s.Listener
	live := l.raw.Listeners[s.Name]
	d := convertDetails[loadbalancer.UpdateListenerDetails](live)
	d.DefaultBackendSetName, d.Port, d.Protocol = &want.DefaultSet, &want.Port, &want.Protocol
	d.HostnameNames, d.RuleSetNames, d.RoutingPolicyName, d.SslConfiguration = want.Hostnames, want.RuleSets, nil, nil
	if want.Policy != "" {
		d.RoutingPolicyName = &want.Policy
	}
	if want.IdleTimeout > 0 {
		if d.ConnectionConfiguration == nil {
			d.ConnectionConfiguration = &loadbalancer.ConnectionConfiguration{}
		}
		d.ConnectionConfiguration.IdleTimeout = common.Int64(int64(want.IdleTimeout))
	}
	if want.TLS != nil {
		d.SslConfiguration = tlsDetails(want.TLS, live.SslConfiguration)
	}
	if s.Action == lblayout.Update {
		return d
	}
	created := convertDetails[loadbalancer.CreateListenerDetails](d)
	created.Name = &want.Name
	return created
}

func tlsDetails(want *lblayout.TLS, live *loadbalancer.SslConfiguration) *loadbalancer.SslConfigurationDetails {
	d := &loadbalancer.SslConfigurationDetails{}
	if live != nil {
		*d = convertDetails[loadbalancer.SslConfigurationDetails](live)
	}
	d.CertificateIds, d.Protocols, d.CertificateName, d.CipherSuiteName = want.CertificateIDs, want.Protocols, nil, nil
	if want.Certificate != "" {
		d.CertificateName = &want.Certificate
	}
	if suite := want.CipherSuite; suite != "" && suite != customizedSuite {
		d.CipherSuiteName = &suite
	}
	return d
}

func policyBody(s *lblayout.Step) any {
	var rules []loadbalancer.RoutingRule
	for i := range s.Policy.Rules {
		r := &s.Policy.Rules[i]
		rules = append(rules, loadbalancer.RoutingRule{
			Name: &r.Name, Condition: &r.Condition,
			Actions: []loadbalancer.Action{loadbalancer.ForwardToBackendSet{BackendSetName: &r.Set}},
		})
	}
	if s.Action == lblayout.Update {
		return loadbalancer.UpdateRoutingPolicyDetails{
			Rules: rules, ConditionLanguageVersion: loadbalancer.UpdateRoutingPolicyDetailsConditionLanguageVersionV1,
		}
	}
	return loadbalancer.CreateRoutingPolicyDetails{
		Name: &s.Policy.Name, Rules: rules, ConditionLanguageVersion: loadbalancer.CreateRoutingPolicyDetailsConditionLanguageVersionV1,
	}
}

func ruleSetBody(s *lblayout.Step) any {
	r := s.RuleSet.Redirect
	items := []loadbalancer.Rule{loadbalancer.RedirectRule{
		ResponseCode: &r.Code,
		RedirectUri:  &loadbalancer.RedirectUri{Protocol: common.String("HTTPS"), Port: &r.Port}, // host, path and query stay
		Conditions: []loadbalancer.RuleCondition{loadbalancer.PathMatchCondition{
			AttributeValue: common.String(allPaths), Operator: loadbalancer.PathMatchConditionOperatorForceLongestPrefixMatch,
		}},
	}}
	if s.Action == lblayout.Update {
		return loadbalancer.UpdateRuleSetDetails{Items: items}
	}
	return loadbalancer.CreateRuleSetDetails{Name: &s.RuleSet.Name, Items: items}
}

func hostnameBody(s *lblayout.Step) any {
	if s.Action == lblayout.Update {
		return loadbalancer.UpdateHostnameDetails{Hostname: &s.Hostname.Hostname}
	}
	return loadbalancer.CreateHostnameDetails{Name: &s.Hostname.Name, Hostname: &s.Hostname.Hostname}
}

func certificateBody(c *lblayout.Certificate) any {
	d := loadbalancer.CreateCertificateDetails{CertificateName: &c.Name, PublicCertificate: &c.Public, PrivateKey: &c.Private}
	if c.Authority != "" {
		d.CaCertificate = &c.Authority
	}
	return d
}

func setBody(s *lblayout.Step) any {
	d := loadbalancer.CreateBackendSetDetails{
		Name: &s.Set.Name, Policy: common.String("ROUND_ROBIN"), Backends: make([]loadbalancer.BackendDetails, 0, len(s.Backends)),
		HealthChecker: healthDetails(&s.Set.Health, nil),
	}
	for _, b := range s.Backends {
		d.Backends = append(d.Backends, backendDetails(b))
	}
	return d
}

// PathRouted returns the backend sets of path route sets. The program never writes these.
func (l *LoadBalancer) PathRouted() map[string]bool {
	sets := map[string]bool{}
	for _, s := range l.raw.PathRouteSets {
		for _, r := range s.PathRoutes {
			sets[valueOf(r.BackendSetName)] = true
		}
	}
	return sets
}
