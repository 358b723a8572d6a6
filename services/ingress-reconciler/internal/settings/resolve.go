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
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Defaults of settings.
const (
	defaultDomainTemplate   = "{{ .Name }}.{{ .Namespace }}.{{ .IngressDomain }}"
	defaultURLScheme        = "http"
	defaultSharedHostPrefix = "llm"
	defaultKnativeGateway   = "knative-local-gateway.istio-system.svc." // followed by the cluster domain
	defaultModelName        = "{{ .Name }}"
	defaultPickerPort       = 9002
	defaultFallbackSuffix   = "-external"
	anyNamespace            = "*"
)

// Failure modes of an InferencePool: if its endpoint picker is unreachable, the data plane rejects requests (FailClose) or sends
// them to any endpoint (FailOpen).
const (
	FailClose = "FailClose"
	FailOpen  = "FailOpen"
)

// Config combines all sources of configuration except annotations.
type Config struct {
	Document  *Document
	Inherited *Inherited // nil if OME has no configuration and is therefore not installed

	ClusterDomain string // DNS domain of the cluster
}

// Settings are the effective settings of one service.
type Settings struct {
	Enabled bool
	Private bool // the owner of the service wants no routes
	OMEActs bool // OME creates routes for the service, so this controller creates none

	Strategy          Strategy
	GatewayAPI        bool // with strategy auto and no Knative: create HTTPRoutes instead of Ingresses
	Domain            string
	AdditionalDomains []string
	Host              *hostname.Template
	Path              *hostname.Template // nil: no path routes
	URLScheme         string
	SchemeSet         bool   // URLScheme wins over the listener and the TLS settings
	URLPort           int32  // 0: the default of URLScheme, or that of the listener
	Subdomain         bool   // each service has its own host; false: a path on a shared host
	SharedHostPrefix  string // empty: the shared host is the domain
	ComponentHosts    bool
	Gateways          []Parent
	IstioGateway      string
	IstioOff          bool
	IngressClass      *string // nil: the cluster's default class
	KnativeGateway    string
	Timeout           time.Duration
	NoRouteTimeouts   bool // omit timeouts from HTTPRoutes

	// Domains contain the hosts that a tenant may choose: the allowedDomains of the namespace, or without that setting the domains
	// that the administrator configured for the service. If Restricted is true, allowedDomains is set, and applies to all hosts.
	Domains    ownership.Domains
	Restricted bool
	FromTenant FromTenant

	MaxBody      int64 // bytes of a request body; 0: no limit
	BufferBodies bool
	TLS          TLS
	Pool         *InferencePool     // nil: route to Services
	Picker       *hostname.Template // name of the endpoint picker's Service, for pools that this controller creates; nil: creates no pool
	ModelHeader  string             // empty: none
	ModelName    *hostname.Template
	Fallback     *FallbackService // nil: none

	ClusterDomain       string
	Labels, Annotations map[string]string // set by the administrator on the objects
	Copied              Copied            // copied from the InferenceService to the objects
	Ignored             []string          // annotations of OME that have another effect than their documentation says, and the remedy
	CopyProblem         string            // the reason why nothing is copied; empty: no problem

	other *Values // for kinds other than HTTPRoutes, if OME has a configuration: see ForStrategy
}

// FromTenant names the settings that a tenant chose: by an annotation of the service that no override replaces, or by labels and
// annotations that a template of the administrator uses.
type FromTenant struct {
	Domain, AdditionalDomains, Gateways bool
	Host, SharedHost                    bool // the host template; the prefix of the shared host
	Path                                bool
}

// TLS configures TLS termination of an Ingress. For HTTPRoutes and VirtualServices the Gateways configure TLS.
type TLS struct {
	Secret *hostname.Template // nil: no Secret, or with an issuer one Secret for each host
	Issuer string             // kind/name; empty: no issuer
}

// Parent is a Gateway that HTTPRoutes attach to.
type Parent struct {
	GatewayRef

	Domain string
}

// ClusterLocal reports whether only the DNS of the cluster resolves a host.
func (s *Settings) ClusterLocal(host string) bool { return isWithin(host, "svc."+s.ClusterDomain) }

// ResolveSettings returns the effective settings of a service, or an error if a value for the service is invalid.
func (c *Config) ResolveSettings(s *isvc.Service) (Settings, error) {
	private := isPrivate(s.Annotations)
	own, err := annotationValues(s.Annotations)
	if err != nil {
		return Settings{Private: private}, err
	}
	administrators, _ := c.mergeValues(s, &Values{}) // the settings without annotations
	merged, enabled := c.mergeValues(s, &own)
	out := Settings{
		Enabled: enabled, Private: private, Ignored: ignoredAnnotations(s.Annotations), OMEActs: c.OMEActs(s),
		ClusterDomain: c.ClusterDomain,
	}
	gatewayAPI := merged.EnableGatewayAPI
	if gatewayAPI == nil && valueOf(merged.OMEIngressGateway) != "" {
		gatewayAPI = new(true)
	}
	scheme := merged.URLScheme // before inheritance
	merged, other := c.Inherited.mergeInherited(merged, s.Namespace)
	out.SchemeSet = valueOf(scheme) != "" || valueOf(merged.URLScheme) == "https" // OME's chart always sets http
	if c.Inherited != nil {
		out.other = &other
	}
	if gatewayAPI == nil {
		gatewayAPI = merged.EnableGatewayAPI
	}
	out.GatewayAPI = valueOf(gatewayAPI)
	if err := out.setValues(&merged); err != nil {
		return out, err
	}
	out.copyFrom(s, &merged)
	out.FromTenant = fromTenant(&merged, &own, out.Host, out.Path)
	out.Domains, out.Restricted, err = c.tenantDomains(s.Namespace, administrators)
	return out, err
}

// mergeValues returns the values from the configuration and the annotations of a service, without inherited values.
func (c *Config) mergeValues(s *isvc.Service, annotations *Values) (v Values, enabled bool) {
	d := c.Document
	v = annotations.mergeOver(d.Values.forNamespace(s.Namespace, d.NamespaceIngressGateways))
	enabled = ptr.Deref(d.Enabled, true)
	for i := range d.Overrides {
		if o := &d.Overrides[i]; o.matchesService(s) {
			v = o.mergeOver(v)
			enabled = ptr.Deref(o.Enabled, enabled)
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

// forNamespace returns the values for a namespace: the gateways of the namespace override the others.
func (v Values) forNamespace(namespace string, gateways map[string]NamespaceGateways) Values {
	if g, ok := gateways[namespace]; ok {
		return g.asValues().mergeOver(v)
	}
	return v
}

// asValues returns the gateways of a namespace as Values.
func (g *NamespaceGateways) asValues() Values {
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

// matchesService reports whether an override applies to a service. Its selector is valid.
func (o *Override) matchesService(s *isvc.Service) bool {
	if len(o.Namespaces) > 0 && !slices.Contains(o.Namespaces, s.Namespace) || len(o.Names) > 0 && !slices.Contains(o.Names, s.Name) {
		return false
	}
	if o.Selector == nil {
		return true
	}
	selector, err := metav1.LabelSelectorAsSelector(o.Selector)
	return err == nil && selector.Matches(labels.Set(s.Labels))
}

// OMEActs reports whether OME creates routes for a service, from its annotation or from OME's configuration. Without OME's
// configuration OME is not installed.
func (c *Config) OMEActs(s *isvc.Service) bool {
	if disabled, found := s.Annotations[annotationDisableCreation]; found {
		return disabled != "true"
	}
	return c.Inherited != nil && !c.Inherited.DisableIngressCreation
}

// tenantDomains returns the domains that may contain hosts of a namespace: allowedDomains, or the domains that administrators configured.
func (c *Config) tenantDomains(namespace string, administrators Values) (domains ownership.Domains, restricted bool, err error) {
	if c.Document.AllowedDomains == nil {
		httpRoute, other := c.Inherited.mergeInherited(administrators, namespace)
		for _, v := range []*Values{&httpRoute, &other} {
			domains = append(domains, valueOf(v.IngressDomain))
			domains = append(domains, valueOf(v.AdditionalIngressDomains)...)
			for _, g := range valueOf(v.AdditionalIngressGateways) {
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
	return t.RenderHost(hostname.Values{Namespace: namespace})
}

// setValues sets the fields from merged values. It validates them first, because inherited values have not been validated.
func (s *Settings) setValues(v *Values) error {
	var check strictyaml.Checker
	if v.validate(&check); check.AllProblems() != nil {
		return check.AllProblems()
	}
	s.setHosting(v)
	s.Strategy, s.URLScheme = cmp.Or(v.Strategy, Auto), cmp.Or(valueOf(v.URLScheme), defaultURLScheme)
	s.URLPort = int32(valueOf(v.URLPort)) // validated
	s.AdditionalDomains = valueOf(v.AdditionalIngressDomains)
	s.ComponentHosts, s.IstioOff = valueOf(v.ComponentHosts), valueOf(v.DisableIstioVirtualHost)
	s.IstioGateway, s.IngressClass = valueOf(v.IngressGateway), v.IngressClassName
	if valueOf(v.IngressClassName) == "" {
		s.IngressClass = nil
	}
	s.NoRouteTimeouts = valueOf(v.DisableHTTPRouteTimeout)
	s.KnativeGateway = cmp.Or(valueOf(v.KnativeGatewayService), defaultKnativeGateway+s.ClusterDomain)
	s.BufferBodies, s.ModelHeader = valueOf(v.BufferBodies), valueOf(v.ModelHeader)
	s.TLS.Issuer, s.Pool = valueOf(v.TLSIssuer), v.InferencePool.withDefaults()
	s.Fallback = v.FallbackService.withDefaults()
	s.Labels, s.Annotations = valueOf(v.Labels), valueOf(v.Annotations)
	if text := valueOf(v.MaxRequestBodySize); text != "" {
		most := resource.MustParse(string(text)) // validated
		s.MaxBody = most.Value()
	}
	return errors.Join(s.parseTemplates(v), s.setGateways(v))
}

// parseTemplates parses the templates.
func (s *Settings) parseTemplates(v *Values) error {
	var errs []error
	parse := func(text *string, defaultText string) *hostname.Template {
		given := cmp.Or(valueOf(text), defaultText)
		if given == "" {
			return nil
		}
		t, err := hostname.Parse(given)
		errs = append(errs, err)
		return t
	}
	s.Host, s.Path = parse(v.DomainTemplate, defaultDomainTemplate), parse(v.PathTemplate, "")
	s.ModelName = parse(v.ModelNameTemplate, defaultModelName)
	s.TLS.Secret = parse(v.TLSSecretName, "")
	if s.Pool != nil && s.Pool.EndpointPickerRef != nil {
		s.Picker = parse(&s.Pool.EndpointPickerRef.Name, "")
	}
	return errors.Join(errs...)
}

// withDefaults returns the pool with defaults for unset fields, nil if no pool is configured.
func (p *InferencePool) withDefaults() *InferencePool {
	if p == nil || p.Name == "" && p.EndpointPickerRef == nil {
		return nil
	}
	out := *p
	if p.EndpointPickerRef != nil {
		ref := *p.EndpointPickerRef
		ref.Port, ref.FailureMode = cmp.Or(ref.Port, defaultPickerPort), cmp.Or(ref.FailureMode, FailClose)
		out.EndpointPickerRef = &ref
	}
	return &out
}

// withDefaults returns the Service with defaults for unset fields, nil if it is not enabled.
func (f *FallbackService) withDefaults() *FallbackService {
	if f == nil || !f.Enabled {
		return nil
	}
	out := *f
	out.Suffix, out.Type = cmp.Or(f.Suffix, defaultFallbackSuffix), cmp.Or(f.Type, "ClusterIP")
	if f.CopyAnnotations == nil {
		out.CopyAnnotations = defaultCopyFallbackAnnotations
	}
	return &out
}

// setGateways parses the Gateways.
func (s *Settings) setGateways(v *Values) error {
	gateways := valueOf(v.AdditionalIngressGateways)
	if first := valueOf(v.OMEIngressGateway); first != "" {
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

// valueOf returns the value that a pointer points to, or the zero value if it is nil.
func valueOf[T any](p *T) T {
	var none T
	return ptr.Deref(p, none)
}
