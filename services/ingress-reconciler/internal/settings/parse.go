package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// Parse reads a configuration of our own. Keys that nobody knows are warnings: a newer release may know them.
func Parse(text []byte) (d *Document, warnings []string, err error) {
	raw, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, nil, fmt.Errorf("parse configuration: %w", err)
	}
	d = &Document{}
	unknown, err := kjson.UnmarshalStrict(raw, d, kjson.DisallowUnknownFields)
	if err != nil {
		return nil, nil, fmt.Errorf("parse configuration: %w", err)
	}
	for _, e := range unknown {
		warnings = append(warnings, e.Error())
	}
	d.normalize()
	for i := range d.Overrides {
		d.Overrides[i].normalize()
	}
	if err := d.validate(); err != nil {
		return nil, nil, fmt.Errorf("configuration: %w", err)
	}
	return d, warnings, nil
}

// validate says all that is wrong for every service.
func (d *Document) validate() error {
	errs := []error{d.Values.validate("")}
	if d.HoldSeconds != nil && *d.HoldSeconds < 0 {
		errs = append(errs, fmt.Errorf("holdSeconds %d is negative", *d.HoldSeconds))
	}
	for namespace, g := range d.NamespaceIngressGateways {
		path := "namespaceIngressGateways." + namespace
		if g.Primary != nil {
			errs = append(errs, g.Primary.validate(path+".primary."))
		}
		for i := range g.Additional {
			errs = append(errs, g.Additional[i].validate(fmt.Sprintf("%s.additional[%d].", path, i)))
		}
	}
	for namespace, domains := range d.AllowedDomains {
		for i, domain := range domains {
			errs = append(errs, validateDomain(fmt.Sprintf("allowedDomains.%s[%d]", namespace, i), domain))
		}
	}
	for i := range d.Overrides {
		o, path := &d.Overrides[i], fmt.Sprintf("overrides[%d].", i)
		errs = append(errs, o.Values.validate(path))
		if _, err := metav1.LabelSelectorAsSelector(o.Selector); err != nil {
			errs = append(errs, fmt.Errorf("%sselector: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// validate says all that is wrong with what is said, each with its path.
func (v *Values) validate(path string) error {
	var errs []error
	check := func(key string, value *string, f func(string) error) {
		if value == nil || *value == "" {
			return
		}
		if err := f(*value); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", path, key, err))
		}
	}
	switch v.Strategy {
	case "", Auto, HTTPRoute, Ingress, VirtualService:
	default:
		errs = append(errs, fmt.Errorf("%sstrategy %q is none of auto, httproute, ingress, virtualservice", path, v.Strategy))
	}
	check("ingressDomain", v.IngressDomain, hostname.Validate)
	check("domainTemplate", v.DomainTemplate, parses)
	check("pathTemplate", v.PathTemplate, parses)
	check("urlScheme", v.URLScheme, oneOf("http", "https"))
	check("omeIngressGateway", v.OMEIngressGateway, func(s string) error { _, err := ParseGateway(s); return err })
	check("maxRequestBodySize", v.MaxRequestBodySize, quantity)
	check("tlsSecretName", v.TLSSecretName, parses)
	check("tlsIssuer", v.TLSIssuer, issuer)
	check("modelNameTemplate", v.ModelNameTemplate, parses)
	check("modelBasedRoutingHeaderName", v.ModelHeader, header)
	errs = append(errs, v.InferencePool.validate(path+"inferencePool."), v.FallbackService.validate(path+"fallbackService."))
	for key, text := range value(v.Labels) {
		if problems := append(content.IsLabelKey(key), content.IsLabelValue(text)...); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%slabels: %s: %s: %s", path, key, text, problems[0]))
		}
	}
	for key := range value(v.Annotations) {
		if problems := content.IsLabelKey(strings.ToLower(key)); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%sannotations: %s: %s", path, key, problems[0]))
		}
	}
	if v.AdditionalIngressDomains != nil {
		for i, d := range *v.AdditionalIngressDomains {
			errs = append(errs, validateDomain(fmt.Sprintf("%sadditionalIngressDomains[%d]", path, i), d))
		}
	}
	if v.AdditionalIngressGateways != nil {
		for i, g := range *v.AdditionalIngressGateways {
			errs = append(errs, g.validate(fmt.Sprintf("%sadditionalIngressGateways[%d].", path, i)))
		}
	}
	if n := v.DefaultRouteTimeoutSeconds; n != nil && *n < 0 {
		errs = append(errs, fmt.Errorf("%sdefaultRouteTimeoutSeconds %d is negative", path, *n))
	}
	return errors.Join(errs...)
}

func (g *Gateway) validate(path string) error {
	_, err := ParseGateway(g.OMEIngressGateway)
	if err != nil {
		err = fmt.Errorf("%someIngressGateway: %w", path, err)
	}
	if g.IngressDomain != "" {
		err = errors.Join(err, validateDomain(path+"ingressDomain", g.IngressDomain))
	}
	return err
}

func (p *InferencePool) validate(path string) error {
	switch {
	case p == nil:
		return nil
	case p.Name != "" && p.EndpointPickerRef != nil:
		return fmt.Errorf("%sname and %sendpointPickerRef: give one of them", path, path)
	case p.Name != "":
		return dnsName(path+"name", p.Name)
	case p.EndpointPickerRef == nil:
		return nil // turns off what was said before
	}
	ref := p.EndpointPickerRef
	err := dnsName(path+"endpointPickerRef.name", ref.Name)
	if ref.Port < 0 || ref.Port > 65535 {
		err = errors.Join(err, fmt.Errorf("%sendpointPickerRef.port %d is not a port", path, ref.Port))
	}
	if ref.FailureMode != "" {
		if e := oneOf(FailClose, FailOpen)(ref.FailureMode); e != nil {
			err = errors.Join(err, fmt.Errorf("%sendpointPickerRef.failureMode: %w", path, e))
		}
	}
	return err
}

func (f *FallbackService) validate(path string) error {
	if f == nil {
		return nil
	}
	var errs []error
	if f.Suffix != "" {
		if problems := validation.IsDNS1035Label("a" + f.Suffix); len(problems) > 0 || !strings.HasPrefix(f.Suffix, "-") {
			errs = append(errs, fmt.Errorf("%ssuffix %q: want a dash, and letters and digits after it", path, f.Suffix))
		}
		if slices.ContainsFunc(isvc.Roles, func(r isvc.Role) bool { return f.Suffix == "-"+string(r) }) {
			errs = append(errs, fmt.Errorf("%ssuffix %q is that of a Service of OME", path, f.Suffix))
		}
	}
	if f.Type != "" {
		if err := oneOf("ClusterIP", "NodePort", "LoadBalancer")(f.Type); err != nil {
			errs = append(errs, fmt.Errorf("%stype: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

func dnsName(path, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", path, name, problems[0])
	}
	return nil
}

func quantity(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return fmt.Errorf("%q is not a size, as 64Mi is", text)
	}
	return nil
}

func issuer(text string) error {
	kind, name, _ := strings.Cut(text, "/")
	if kind != "Issuer" && kind != "ClusterIssuer" || name == "" {
		return fmt.Errorf("%q is neither Issuer/<name> nor ClusterIssuer/<name>", text)
	}
	return nil
}

func header(text string) error {
	if problems := validation.IsHTTPHeaderName(text); len(problems) > 0 {
		return fmt.Errorf("%q: %s", text, problems[0])
	}
	return nil
}

func validateDomain(path, domain string) error {
	if err := hostname.Validate(domain); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func parses(text string) error {
	_, err := hostname.Parse(text)
	return err //nolint:wrapcheck // it says all
}

func oneOf(all ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(all, s) {
			return nil
		}
		return fmt.Errorf("%q is none of %s", s, strings.Join(all, ", "))
	}
}

// GatewayRef names a Gateway, or one of its listeners.
type GatewayRef struct {
	Namespace, Name string
	Listener        string // its sectionName; empty: all that fit
}

// ParseGateway reads namespace/name, or namespace/name/listener.
func ParseGateway(text string) (GatewayRef, error) {
	parts := strings.Split(text, "/")
	switch {
	case slices.Contains(parts, ""):
	case len(parts) == 2:
		return GatewayRef{Namespace: parts[0], Name: parts[1]}, nil
	case len(parts) == 3:
		return GatewayRef{Namespace: parts[0], Name: parts[1], Listener: parts[2]}, nil
	}
	return GatewayRef{}, fmt.Errorf("%q is not a Gateway: give namespace/name, or namespace/name/listener", text)
}

// Inherited is what OME's ConfigMap says.
type Inherited struct {
	Values

	DisableIngressCreation bool `json:"disableIngressCreation"` // OME makes no routes by itself
}

// ParseInherited reads the key ingress of OME's ConfigMap as OME does: JSON, its keys in any case. What only OME uses may be
// anything. A domain within the cluster is what OME ships where nobody has set one: it counts as none.
func ParseInherited(text []byte, clusterDomain string) (*Inherited, error) {
	in := &Inherited{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, fmt.Errorf("parse OME's configuration of ingress: %w", err)
	}
	in.Strategy = "" // it knows none
	in.normalize()
	if d := in.IngressDomain; d != nil && within(*d, "svc."+clusterDomain) {
		in.IngressDomain = nil
	}
	return in, nil
}

// within reports whether a name is a domain or below it.
func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }
