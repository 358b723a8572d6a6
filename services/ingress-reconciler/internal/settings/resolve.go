package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// What holds where nobody says otherwise.
const (
	usualDomainTemplate   = "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"
	usualURLScheme        = "http"
	usualSharedHostPrefix = "llm"
	usualKnativeGateway   = "knative-local-gateway.istio-system.svc." // and the cluster's domain
	usualModelName        = "{{ .Name }}"
	usualPickerPort       = 9002
	usualFallbackSuffix   = "-external"
	anyNamespace          = "*"
)

// What becomes of a request when the picker of a pool cannot be reached: it is refused, or goes anywhere.
const (
	FailClose = "FailClose"
	FailOpen  = "FailOpen"
)

// Config is all that is configured.
type Config struct {
	Document  *Document
	Inherited *Inherited // nil if OME has no configuration, and so is not there

	ClusterDomain string // below which Services have their names
}

// Settings are what holds for one service.
type Settings struct {
	Enabled bool
	OMEActs bool // OME makes routes for it: then we make none

	Strategy          Strategy
	GatewayAPI        bool // what auto takes for pods without Knative: HTTPRoutes, else Ingress
	Domain            string
	AdditionalDomains []string
	Host              *hostname.Template
	Path              *hostname.Template // nil: no paths
	URLScheme         string
	Subdomain         bool   // a host of its own, else a path on a shared one
	SharedHostPrefix  string // empty: the domain itself
	ComponentHosts    bool
	Gateways          []Parent
	IstioGateway      string
	IstioOff          bool
	IngressClass      *string // nil: the cluster's default
	KnativeGateway    string
	Timeout           time.Duration
	NoRouteTimeouts   bool // leave timeouts out of HTTPRoutes

	// Domains are where hosts that a tenant chooses must lie: the namespace's allowedDomains, or without that setting the domains
	// that the administrator configured for the service. Restricted means that allowedDomains is set: then all hosts must lie there.
	Domains    ownership.Domains
	Restricted bool
	FromTenant FromTenant

	MaxBody      int64 // bytes of a request's body; 0: any
	BufferBodies bool
	TLS          TLS
	Pool         *InferencePool     // nil: Services
	Picker       *hostname.Template // name of the endpoint picker's Service, for pools that are created; nil: none are
	ModelHeader  string             // empty: none
	ModelName    *hostname.Template
	Fallback     *FallbackService // nil: none

	ClusterDomain       string
	Labels, Annotations map[string]string // of the objects, by the administrator
	Copied              Copied            // of the objects, by the InferenceService
	CopyProblem         string            // why nothing is copied; empty: there is no problem

	other *hosting // of objects that are not HTTPRoutes, if it differs: see For
}

// FromTenant names the settings that a tenant chose: by an annotation of the service that no override replaces, or by labels and
// annotations that a template of the administrator uses.
type FromTenant struct {
	Domain, AdditionalDomains, Gateways bool
	Host, SharedHost                    bool // the template of the host; the prefix of the shared host
	Path                                bool
}

// TLS is how an Ingress ends TLS. Gateways say it for HTTPRoutes and VirtualServices.
type TLS struct {
	Secret *hostname.Template // nil: none, or with an issuer one for each host
	Issuer string             // kind/name; empty: none
}

// Parent is a Gateway to attach to.
type Parent struct {
	GatewayRef

	Domain string
}

// ClusterLocal reports whether a host is one that only the cluster's own DNS knows.
func (s *Settings) ClusterLocal(host string) bool { return within(host, "svc."+s.ClusterDomain) }

// Resolve returns what holds for a service, or what is wrong with what is said of it.
func (c *Config) Resolve(s *isvc.Service) (Settings, error) {
	own, err := annotated(s.Annotations)
	if err != nil {
		return Settings{}, err
	}
	administrators, _ := c.merge(s, &Values{}) // as it would be without annotations
	merged, enabled := c.merge(s, &own)
	out := Settings{Enabled: enabled, OMEActs: c.OMEActs(s), ClusterDomain: c.ClusterDomain}
	gatewayAPI := merged.EnableGatewayAPI
	if gatewayAPI == nil && value(merged.OMEIngressGateway) != "" {
		gatewayAPI = new(true)
	}
	merged, other := c.Inherited.under(merged, s.Namespace)
	if h := other.hosting(); h != merged.hosting() {
		out.other = &h
	}
	if gatewayAPI == nil {
		gatewayAPI = merged.EnableGatewayAPI
	}
	out.GatewayAPI = value(gatewayAPI)
	if err := out.fill(&merged); err != nil {
		return out, err
	}
	out.copyFrom(s, &merged)
	out.FromTenant = fromTenant(&merged, &own, out.Host, out.Path)
	out.Domains, out.Restricted, err = c.domains(s.Namespace, administrators)
	return out, err
}

// merge returns what our configuration and the annotations of a service say, without what OME's configuration says.
func (c *Config) merge(s *isvc.Service, annotations *Values) (v Values, enabled bool) {
	d := c.Document
	v = annotations.over(d.Values.in(s.Namespace, d.NamespaceIngressGateways))
	enabled = d.Enabled == nil || *d.Enabled
	for i := range d.Overrides {
		if o := &d.Overrides[i]; o.matches(s) {
			v = o.over(v)
			if o.Enabled != nil {
				enabled = *o.Enabled
			}
		}
	}
	return v, enabled
}

// fromTenant compares merged values with those of the annotations: a pointer to the same value means that nothing replaced it.
func fromTenant(merged, own *Values, host, path *hostname.Template) FromTenant {
	return FromTenant{
		Domain:            own.IngressDomain != nil && merged.IngressDomain == own.IngressDomain,
		AdditionalDomains: own.AdditionalIngressDomains != nil && merged.AdditionalIngressDomains == own.AdditionalIngressDomains,
		Gateways:          own.AdditionalIngressGateways != nil && merged.AdditionalIngressGateways == own.AdditionalIngressGateways,
		Host:              own.DomainTemplate != nil && merged.DomainTemplate == own.DomainTemplate || host.UsesMetadata(),
		SharedHost:        own.SharedHostPrefix != nil && merged.SharedHostPrefix == own.SharedHostPrefix,
		Path:              own.PathTemplate != nil && merged.PathTemplate == own.PathTemplate || path.UsesMetadata(),
	}
}

// in returns what holds in a namespace, which may have gateways of its own.
func (v Values) in(namespace string, gateways map[string]NamespaceGateways) Values {
	if g, ok := gateways[namespace]; ok {
		return g.values().over(v)
	}
	return v
}

// values is what the gateways of a namespace say.
func (g *NamespaceGateways) values() Values {
	var v Values
	if g.Primary != nil {
		if g.Primary.OMEIngressGateway != "" {
			v.OMEIngressGateway = &g.Primary.OMEIngressGateway
		}
		if g.Primary.IngressDomain != "" {
			v.IngressDomain = &g.Primary.IngressDomain
		}
	}
	if g.Additional != nil {
		v.AdditionalIngressGateways = &g.Additional
	}
	return v
}

// matches reports whether an override is for a service. Its selector is valid.
func (o *Override) matches(s *isvc.Service) bool {
	if len(o.Namespaces) > 0 && !slices.Contains(o.Namespaces, s.Namespace) || len(o.Names) > 0 && !slices.Contains(o.Names, s.Name) {
		return false
	}
	if o.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(o.Selector)
	return err == nil && selector.Matches(labels.Set(s.Labels))
}

// OMEActs reports whether OME makes routes for a service by itself: as its configuration says, or an annotation. Where there
// is no configuration of OME, there is no OME.
func (c *Config) OMEActs(s *isvc.Service) bool {
	if disabled, said := s.Annotations[annotationDisableCreation]; said {
		return disabled != "true"
	}
	return c.Inherited != nil && !c.Inherited.DisableIngressCreation
}

// domains returns where hosts of a namespace may lie: allowedDomains, or the domains that administrators configured.
func (c *Config) domains(namespace string, administrators Values) (domains ownership.Domains, restricted bool, err error) {
	if c.Document.AllowedDomains == nil {
		httpRoute, other := c.Inherited.under(administrators, namespace)
		for _, v := range []*Values{&httpRoute, &other} {
			domains = append(domains, value(v.IngressDomain))
			domains = append(domains, value(v.AdditionalIngressDomains)...)
			for _, g := range value(v.AdditionalIngressGateways) {
				domains = append(domains, g.IngressDomain)
			}
		}
		slices.Sort(domains)
		return slices.DeleteFunc(slices.Compact(domains), func(d string) bool { return d == "" }), false, nil
	}
	allowed, ok := c.Document.AllowedDomains[namespace]
	if !ok {
		allowed = c.Document.AllowedDomains[anyNamespace]
	}
	for _, text := range allowed {
		domain, err := allowedDomain(text, namespace)
		if err != nil {
			return nil, true, fmt.Errorf("allowedDomains: %w", err)
		}
		domains = append(domains, domain)
	}
	return domains, true, nil
}

// allowedDomain returns an entry of allowedDomains for one namespace.
func allowedDomain(text, namespace string) (string, error) {
	t, err := hostname.Parse(text)
	if err != nil {
		return "", err
	}
	return t.Host(hostname.Values{Namespace: namespace})
}

// fill takes the merged values. What was inherited was not looked at before.
func (s *Settings) fill(v *Values) error {
	if err := v.validate(""); err != nil {
		return err
	}
	s.use(v.hosting())
	s.Strategy, s.URLScheme = cmp.Or(v.Strategy, Auto), cmp.Or(value(v.URLScheme), usualURLScheme)
	s.AdditionalDomains = value(v.AdditionalIngressDomains)
	s.ComponentHosts, s.IstioOff = value(v.ComponentHosts), value(v.DisableIstioVirtualHost)
	s.IstioGateway, s.IngressClass = value(v.IngressGateway), v.IngressClassName
	if value(v.IngressClassName) == "" {
		s.IngressClass = nil
	}
	s.NoRouteTimeouts = value(v.DisableHTTPRouteTimeout)
	s.KnativeGateway = cmp.Or(value(v.KnativeGatewayService), usualKnativeGateway+s.ClusterDomain)
	s.BufferBodies, s.ModelHeader = value(v.BufferBodies), value(v.ModelHeader)
	s.TLS.Issuer, s.Pool = value(v.TLSIssuer), v.InferencePool.completed()
	s.Fallback = v.FallbackService.completed()
	s.Labels, s.Annotations = value(v.Labels), value(v.Annotations)
	if text := value(v.MaxRequestBodySize); text != "" {
		most := resource.MustParse(string(text)) // validated
		s.MaxBody = most.Value()
	}
	return errors.Join(s.templates(v), s.attach(v))
}

// templates takes the templates.
func (s *Settings) templates(v *Values) error {
	var errs []error
	parse := func(text *string, usual string) *hostname.Template {
		given := cmp.Or(value(text), usual)
		if given == "" {
			return nil
		}
		t, err := hostname.Parse(given)
		errs = append(errs, err)
		return t
	}
	s.Host, s.Path = parse(v.DomainTemplate, usualDomainTemplate), parse(v.PathTemplate, "")
	s.ModelName = parse(v.ModelNameTemplate, usualModelName)
	s.TLS.Secret = parse(v.TLSSecretName, "")
	if s.Pool != nil && s.Pool.EndpointPickerRef != nil {
		s.Picker = parse(&s.Pool.EndpointPickerRef.Name, "")
	}
	return errors.Join(errs...)
}

// completed returns the pool with what it leaves out, nil if there is to be none.
func (p *InferencePool) completed() *InferencePool {
	if p == nil || p.Name == "" && p.EndpointPickerRef == nil {
		return nil
	}
	out := *p
	if p.EndpointPickerRef != nil {
		ref := *p.EndpointPickerRef
		ref.Port, ref.FailureMode = cmp.Or(ref.Port, usualPickerPort), cmp.Or(ref.FailureMode, FailClose)
		out.EndpointPickerRef = &ref
	}
	return &out
}

// completed returns the Service with what it leaves out, nil if there is to be none.
func (f *FallbackService) completed() *FallbackService {
	if f == nil || !f.Enabled {
		return nil
	}
	out := *f
	out.Suffix, out.Type = cmp.Or(f.Suffix, usualFallbackSuffix), cmp.Or(f.Type, "ClusterIP")
	if f.CopyAnnotations == nil {
		out.CopyAnnotations = defaultCopyFallbackAnnotations
	}
	return &out
}

// attach takes the Gateways.
func (s *Settings) attach(v *Values) error {
	gateways := value(v.AdditionalIngressGateways)
	if first := value(v.OMEIngressGateway); first != "" {
		gateways = append([]Gateway{{OMEIngressGateway: first}}, gateways...)
	}
	for _, g := range gateways {
		ref, err := ParseGateway(g.OMEIngressGateway)
		if err != nil {
			return fmt.Errorf("omeIngressGateway: %w", err)
		}
		s.Gateways = append(s.Gateways, Parent{GatewayRef: ref, Domain: cmp.Or(g.IngressDomain, s.Domain)})
	}
	return nil
}

// value is what a pointer points at, or nothing.
func value[T any](p *T) T {
	if p == nil {
		var none T
		return none
	}
	return *p
}
