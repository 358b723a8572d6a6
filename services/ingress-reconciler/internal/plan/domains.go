package plan

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// domain is a domain of the service, and the Gateways that serve it.
type domain struct {
	name       string
	fromTenant bool
	parents    []settings.Parent
}

// serviceDomains returns the domains of a service: its primary domain, the domains of its Gateways, and the additional domains, which every
// Gateway serves. A domain that both the administrator and the tenant set counts as set by the administrator.
func (b *builder) serviceDomains() []domain {
	s := &b.Settings
	var domains []domain
	index := map[string]int{}
	add := func(name string, fromTenant bool, parents ...settings.Parent) {
		i, found := index[name]
		if !found {
			i, domains = len(domains), append(domains, domain{name: name, fromTenant: true})
			index[name] = i
		}
		domains[i].fromTenant = domains[i].fromTenant && fromTenant
		domains[i].parents = append(domains[i].parents, parents...)
	}
	if b.plan.Strategy != settings.HTTPRoute {
		add(s.Domain, s.FromTenant.Domain)
		for _, name := range s.AdditionalDomains {
			add(name, s.FromTenant.AdditionalDomains)
		}
		return domains
	}
	for _, p := range s.Gateways {
		add(p.Domain, s.FromTenant.Domain && p.Domain == s.Domain || s.FromTenant.Gateways && p.Domain != s.Domain, p)
	}
	for _, name := range s.AdditionalDomains {
		add(name, s.FromTenant.AdditionalDomains, s.Gateways...)
	}
	return domains
}

func (b *builder) templateValues(name, domain string) hostname.Values {
	s := b.Service
	return hostname.Values{Name: name, Namespace: s.Namespace, IngressDomain: domain, Annotations: s.Annotations, Labels: s.Labels}
}

// segments matches the paths that all kinds of routes accept literally.
var segments = regexp.MustCompile(`^/([A-Za-z0-9_~-][A-Za-z0-9._~-]*/)+$`)

// renderPath returns the path of a component on the domain itself.
func (b *builder) renderPath(name, domain string) (string, error) {
	text, err := b.Settings.Path.Render(b.templateValues(name, domain))
	if err != nil {
		return "", err
	}
	path := root + strings.Trim(text, root) + root
	if !segments.MatchString(path) {
		return "", fmt.Errorf("path %q: elements must consist of letters, digits and ._~-, and must not begin with a dot", text)
	}
	return path, nil
}

// renderModel returns the header match for a component's model on the shared host.
func (b *builder) renderModel(name, domain string) (Model, error) {
	text, err := b.Settings.ModelName.Render(b.templateValues(name, domain))
	if err != nil {
		return Model{}, err
	}
	if !visible.MatchString(text) {
		return Model{}, fmt.Errorf("name %q must consist of visible ASCII characters", text)
	}
	return Model{Header: b.Settings.ModelHeader, Name: text}, nil
}

// visible matches header values that proxies do not modify.
var visible = regexp.MustCompile(`^[!-~]+$`)

// sharedHost returns the host that services share below a domain.
func (b *builder) sharedHost(domain string) string {
	if b.Settings.SharedHostPrefix == "" {
		return domain
	}
	return b.Settings.SharedHostPrefix + "." + domain
}

// tlsSecretName returns the Secret with the certificate of a host, or "" if none is configured. With an issuer each host has its own
// Secret: if two Ingresses request one Secret for different hosts, cert-manager issues a certificate only for the first.
func (c *collector) tlsSecretName(host string) (name string, err error) {
	tls := &c.Settings.TLS
	switch {
	case tls.Secret != nil:
		if name, err = tls.Secret.Render(c.templateValues(c.Service.Name, c.Settings.Domain)); err != nil {
			return "", err
		}
	case tls.Issuer != "":
		name = host + "-tls"
	default:
		return "", nil
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("%q: %s", name, problems[0])
	}
	return name, nil
}
