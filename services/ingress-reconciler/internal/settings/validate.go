package settings

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// maxSeconds is the longest duration that can be configured. A longer duration is a mistake.
const maxSeconds = int64(30 * 24 * time.Hour / time.Second)

// validate returns all errors in the document, in a stable order.
func (d *Document) validate() error {
	errs := []error{d.Values.validate(""), validateSeconds("holdSeconds", d.HoldSeconds)}
	for _, namespace := range slices.Sorted(maps.Keys(d.NamespaceIngressGateways)) {
		g, path := d.NamespaceIngressGateways[namespace], "namespaceIngressGateways."+namespace
		if g.Primary != nil {
			errs = append(errs, g.Primary.validate(path+".primary."))
		}
		errs = append(errs, validateGateways(path+".additional", g.Additional))
	}
	for _, namespace := range slices.Sorted(maps.Keys(d.AllowedDomains)) {
		errs = append(errs, validateAllowedDomains("allowedDomains."+namespace, d.AllowedDomains[namespace]))
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

// validate returns all errors in the values, each with its path.
func (v *Values) validate(path string) error {
	var errs []error
	strategy := string(v.Strategy)
	for _, text := range []struct {
		key   string
		value *string
		check func(string) error
	}{
		{"strategy", &strategy, validateEnum(string(Auto), string(HTTPRoute), string(Ingress), string(VirtualService))},
		{"ingressDomain", v.IngressDomain, hostname.Validate},
		{"domainTemplate", v.DomainTemplate, validateTemplate},
		{"pathTemplate", v.PathTemplate, validateTemplate},
		{"urlScheme", v.URLScheme, validateEnum("http", "https")},
		{"omeIngressGateway", v.OMEIngressGateway, validateGatewayName},
		{"maxRequestBodySize", (*string)(v.MaxRequestBodySize), validateQuantity},
		{"tlsSecretName", v.TLSSecretName, validateTemplate},
		{"tlsIssuer", v.TLSIssuer, validateIssuer},
		{"modelBasedRoutingHeaderName", v.ModelHeader, validateHeaderName},
		{"modelNameTemplate", v.ModelNameTemplate, validateTemplate},
	} {
		if valueOf(text.value) == "" {
			continue
		}
		if err := text.check(*text.value); err != nil {
			errs = append(errs, fmt.Errorf("%s%s: %w", path, text.key, err))
		}
	}
	return errors.Join(append(errs,
		v.InferencePool.validate(path+"inferencePool."), v.FallbackService.validate(path+"fallbackService."),
		validateLabels(path+"labels", valueOf(v.Labels)), validateAnnotations(path+"annotations", valueOf(v.Annotations)),
		validateCopyLabels(path+"copyLabels", valueOf(v.CopyLabels)), validateCopyAnnotations(path+"copyAnnotations", valueOf(v.CopyAnnotations)),
		validateRemoved(path, valueOf(v.AnnotationPrefixes)),
		validateDomains(path+"additionalIngressDomains", valueOf(v.AdditionalIngressDomains)),
		validateGateways(path+"additionalIngressGateways", valueOf(v.AdditionalIngressGateways)),
		validateSeconds(path+"defaultRouteTimeoutSeconds", v.DefaultRouteTimeoutSeconds), validatePort(path+"urlPort", v.URLPort),
	)...)
}

func validatePort(path string, v *int64) error {
	if n := valueOf(v); n < 0 || n > 65535 {
		return fmt.Errorf("%s: %d is not a port", path, n)
	}
	return nil
}

func (g *Gateway) validate(path string) error {
	err := validateGatewayName(g.OMEIngressGateway)
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
		return fmt.Errorf("%sname and %sendpointPickerRef are both set: set one of them", path, path)
	case p.Name != "":
		return validateDNSName(path+"name", p.Name)
	case p.EndpointPickerRef == nil:
		return nil // turns off the pool of a lower level
	}
	ref := p.EndpointPickerRef
	err := validatePickerName(path+"endpointPickerRef.name", ref.Name)
	if ref.Port < 0 || ref.Port > 65535 {
		err = errors.Join(err, fmt.Errorf("%sendpointPickerRef.port %d is not a port", path, ref.Port))
	}
	if ref.FailureMode != "" {
		if e := validateEnum(FailClose, FailOpen)(ref.FailureMode); e != nil {
			err = errors.Join(err, fmt.Errorf("%sendpointPickerRef.failureMode: %w", path, e))
		}
	}
	return err
}

func (f *FallbackService) validate(path string) error {
	if f == nil {
		return nil
	}
	errs := []error{
		validateAnnotations(path+"annotations", f.Annotations), validateCopyAnnotations(path+"copyAnnotations", f.CopyAnnotations),
		validateRemoved(path, f.AnnotationPrefixes),
	}
	if f.Suffix != "" {
		if problems := validation.IsDNS1035Label("a" + f.Suffix); len(problems) > 0 || !strings.HasPrefix(f.Suffix, "-") || len(f.Suffix) > maxSuffix {
			errs = append(errs, fmt.Errorf("%ssuffix %q must be a dash followed by letters and digits, with at most %d characters", path, f.Suffix, maxSuffix))
		}
		if slices.ContainsFunc(isvc.Roles, func(r isvc.Role) bool { return f.Suffix == "-"+string(r) }) {
			errs = append(errs, fmt.Errorf("%ssuffix %q is reserved for a Service of OME", path, f.Suffix))
		}
	}
	if f.Type != "" {
		if err := validateEnum("ClusterIP", "NodePort", "LoadBalancer")(f.Type); err != nil {
			errs = append(errs, fmt.Errorf("%stype: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// maxSuffix leaves at least 43 of the 63 characters of a Service name for the name of the InferenceService.
const maxSuffix = 20

// validateLabels rejects reserved labels: OME deletes objects with its labels, and the labels of this program identify its objects.
func validateLabels(path string, labels map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		problems := append(content.IsLabelKey(key), content.IsLabelValue(labels[key])...)
		if key == "component" || IsReserved(key) {
			problems = append(problems, "the key is reserved")
		}
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s: %s: %s", path, key, labels[key], problems[0]))
		}
	}
	return errors.Join(errs...)
}

func validateAnnotations(path string, annotations map[string]string) error {
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		problems := content.IsLabelKey(strings.ToLower(key))
		if IsReserved(key) {
			problems = append(problems, "the key is reserved")
		}
		if key == annotationClass {
			problems = append(problems, "use ingressClassName")
		}
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s: %s: %s", path, key, problems[0]))
		}
	}
	return errors.Join(errs...)
}

// IsReserved reports whether OME or this controller defines a label or annotation.
func IsReserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (isWithin(domain, "ome.io") || isWithin(domain, "fairlead.dev"))
}

func validateDomains(path string, domains []string) error {
	var errs []error
	for i, d := range domains {
		errs = append(errs, validateDomain(fmt.Sprintf("%s[%d]", path, i), d))
	}
	return errors.Join(errs...)
}

// validateAllowedDomains validates domains, which may be templates with the field Namespace.
func validateAllowedDomains(path string, domains []string) error {
	var errs []error
	for i, d := range domains {
		if _, err := allowedDomain(d, "namespace"); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", path, i, err))
		}
	}
	return errors.Join(errs...)
}

func validateDomain(path, domain string) error {
	if err := hostname.Validate(domain); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func validateGateways(path string, gateways []Gateway) error {
	var errs []error
	for i := range gateways {
		errs = append(errs, gateways[i].validate(fmt.Sprintf("%s[%d].", path, i)))
	}
	return errors.Join(errs...)
}

func validateSeconds(path string, n *int64) error {
	switch {
	case valueOf(n) < 0:
		return fmt.Errorf("%s %d is negative", path, *n)
	case valueOf(n) > maxSeconds:
		return fmt.Errorf("%s %d is more than 30 days", path, *n)
	}
	return nil
}

func validateDNSName(path, name string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", path, name, problems[0])
	}
	return nil
}

// validatePickerName validates the name of a Service, or a template that renders such a name.
func validatePickerName(path, name string) error {
	if !strings.Contains(name, "{{") {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return fmt.Errorf("%s %q: %s", path, name, problems[0])
		}
		return nil
	}
	if err := validateTemplate(name); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func validateTemplate(text string) error {
	_, err := hostname.Parse(text)
	return err
}

func validateGatewayName(text string) error {
	_, err := ParseGateway(text)
	return err
}

func validateQuantity(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 || q.CmpInt64(math.MaxInt64) > 0 {
		return fmt.Errorf("%q is not a size, such as 64Mi", text)
	}
	return nil
}

func validateIssuer(text string) error {
	kind, name, _ := strings.Cut(text, "/")
	if kind != "Issuer" && kind != "ClusterIssuer" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%q is neither Issuer/<name> nor ClusterIssuer/<name>", text)
	}
	return nil
}

func validateHeaderName(text string) error {
	if problems := validation.IsHTTPHeaderName(text); len(problems) > 0 {
		return fmt.Errorf("%q: %s", text, problems[0])
	}
	return nil
}

func validateEnum(allowed ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(allowed, s) {
			return nil
		}
		return fmt.Errorf("%q is not one of %s", s, strings.Join(allowed, ", "))
	}
}
