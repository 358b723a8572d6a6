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

// usualRoutePrefixes are those of annotations that are for who reads routes.
var usualRoutePrefixes = []string{
	"external-dns.alpha.kubernetes.io/", "cert-manager.io/", "nginx.ingress.kubernetes.io/", "nginx.org/", "traefik.ingress.kubernetes.io/",
	"haproxy.org/", "haproxy-ingress.github.io/", "projectcontour.io/", "konghq.com/", "alb.ingress.kubernetes.io/",
}

// usualAnnotationPrefixes are those of load balancers, of clouds that OME forgets, too.
var usualAnnotationPrefixes = []string{
	"service.beta.kubernetes.io/", "service.kubernetes.io/", "cloud.google.com/", "networking.gke.io/", "oci.oraclecloud.com/",
	"oci-network-load-balancer.oraclecloud.com/", "service.alpha.kubernetes.io/",
}

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
	AllowedDomains    []string // nil: any

	MaxBody      int64 // bytes of a request's body; 0: any
	BufferBodies bool
	TLS          TLS
	Pool         *InferencePool     // nil: Services
	Picker       *hostname.Template // name of the endpoint picker's Service, for pools that are created; nil: none are
	ModelHeader  string             // empty: none
	ModelName    *hostname.Template
	Fallback     *FallbackService // nil: none

	ClusterDomain       string
	Labels, Annotations map[string]string // of what is made
	AnnotationPrefixes  []string          // of annotations of the service that routes get

	other *hosting // of objects that are not HTTPRoutes, if it differs: see For
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

// Allows reports whether a host may be the service's.
func (s *Settings) Allows(host string) bool {
	return s.AllowedDomains == nil || slices.ContainsFunc(s.AllowedDomains, func(d string) bool { return within(host, d) })
}

// Resolve returns what holds for a service, or what is wrong with what is said of it.
func (c *Config) Resolve(s *isvc.Service) (Settings, error) {
	said, enabled, err := c.said(s)
	if err != nil {
		return Settings{}, err
	}
	out := Settings{Enabled: enabled, OMEActs: c.OMEActs(s), AllowedDomains: c.allowed(s.Namespace), ClusterDomain: c.ClusterDomain}
	gatewayAPI := said.EnableGatewayAPI
	if gatewayAPI == nil && value(said.OMEIngressGateway) != "" {
		named := true
		gatewayAPI = &named
	}
	v, other := c.Inherited.under(said, s.Namespace)
	if h := other.hosting(); h != v.hosting() {
		out.other = &h
	}
	if gatewayAPI == nil {
		gatewayAPI = v.EnableGatewayAPI
	}
	out.GatewayAPI = value(gatewayAPI)
	return out, out.fill(&v)
}

// said merges what is said of a service, but for what OME's configuration says.
func (c *Config) said(s *isvc.Service) (v Values, enabled bool, err error) {
	d := c.Document
	v, enabled = d.Values.in(s.Namespace, d.NamespaceIngressGateways), d.Enabled == nil || *d.Enabled
	own, err := annotated(s.Annotations)
	if err != nil {
		return v, enabled, err
	}
	v = own.over(v)
	for i := range d.Overrides {
		if o := &d.Overrides[i]; o.matches(s) {
			v = o.over(v)
			if o.Enabled != nil {
				enabled = *o.Enabled
			}
		}
	}
	return v, enabled, nil
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
		v.OMEIngressGateway = &g.Primary.OMEIngressGateway
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

// allowed returns the domains that hosts of a namespace may be below, nil for any.
func (c *Config) allowed(namespace string) []string {
	if c.Document.AllowedDomains == nil {
		return nil
	}
	domains, ok := c.Document.AllowedDomains[namespace]
	if !ok {
		domains = c.Document.AllowedDomains[anyNamespace]
	}
	return append([]string{}, domains...) // none is not any
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
	s.KnativeGateway = cmp.Or(value(v.KnativeGatewayService), usualKnativeGateway+s.ClusterDomain)
	s.BufferBodies, s.ModelHeader = value(v.BufferBodies), value(v.ModelHeader)
	s.TLS.Issuer, s.Pool = value(v.TLSIssuer), v.InferencePool.completed()
	s.Fallback = v.FallbackService.completed()
	s.Labels, s.Annotations, s.AnnotationPrefixes = value(v.Labels), value(v.Annotations), usualRoutePrefixes
	if v.AnnotationPrefixes != nil {
		s.AnnotationPrefixes = *v.AnnotationPrefixes
	}
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
	if f.AnnotationPrefixes == nil {
		out.AnnotationPrefixes = usualAnnotationPrefixes
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
