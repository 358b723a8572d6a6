package settings

import (
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

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/ingress-reconciler/internal/hostname"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

// maxSeconds is the longest duration that can be configured. A longer duration is a mistake.
const maxSeconds = int64(30 * 24 * time.Hour / time.Second)

// validate records all problems of the document.
func (d *Document) validate(c *strictyaml.Checker) {
	d.Values.validate(c)
	validateSeconds(c, "holdSeconds", d.HoldSeconds)
	for _, namespace := range slices.Sorted(maps.Keys(d.NamespaceIngressGateways)) {
		g, of := d.NamespaceIngressGateways[namespace], c.Below("namespaceIngressGateways."+namespace)
		if g.Primary != nil {
			g.Primary.validate(of.Below("primary"))
		}
		validateGateways(of, "additional", g.Additional)
	}
	for _, namespace := range slices.Sorted(maps.Keys(d.AllowedDomains)) {
		validateTexts(c, "allowedDomains."+namespace, d.AllowedDomains[namespace], validateAllowedDomain)
	}
	for i := range d.Overrides {
		o, of := &d.Overrides[i], c.Below(strictyaml.Indexed("overrides", i))
		o.Values.validate(of)
		if _, err := metav1.LabelSelectorAsSelector(o.Selector); err != nil {
			of.Errorf("selector", "%v", err)
		}
	}
}

// validate records all problems of the values.
func (v *Values) validate(c *strictyaml.Checker) {
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
		validateOptional(c, text.key, valueOf(text.value), text.check)
	}
	v.InferencePool.validate(c.Below("inferencePool"))
	v.FallbackService.validate(c.Below("fallbackService"))
	validateLabels(c, "labels", valueOf(v.Labels))
	validateAnnotations(c, "annotations", valueOf(v.Annotations))
	validateTexts(c, "copyLabels", valueOf(v.CopyLabels), validateCopiedKey)
	validateTexts(c, "copyAnnotations", valueOf(v.CopyAnnotations), validateCopiedAnnotation)
	validateRemoved(c, valueOf(v.AnnotationPrefixes))
	validateTexts(c, "additionalIngressDomains", valueOf(v.AdditionalIngressDomains), hostname.Validate)
	validateGateways(c, "additionalIngressGateways", valueOf(v.AdditionalIngressGateways))
	validateSeconds(c, "defaultRouteTimeoutSeconds", v.DefaultRouteTimeoutSeconds)
	validatePort(c, "urlPort", valueOf(v.URLPort))
}

// validateOptional records the error of a check of a text that is set.
func validateOptional(c *strictyaml.Checker, field, text string, check func(string) error) {
	if text != "" {
		validateText(c, field, text, check)
	}
}

// validateText records the error of a check.
func validateText(c *strictyaml.Checker, field, text string, check func(string) error) {
	if err := check(text); err != nil {
		c.Errorf(field, "%v", err)
	}
}

// validateTexts records the errors of a check of each item of a list.
func validateTexts(c *strictyaml.Checker, field string, list []string, check func(string) error) {
	for i, item := range list {
		validateText(c, strictyaml.Indexed(field, i), item, check)
	}
}

// validatePort accepts 0, which is the default.
func validatePort(c *strictyaml.Checker, field string, port int64) {
	c.Require(port >= 0 && port <= 65535, field, "%d is not a port", port)
}

func (g *Gateway) validate(c *strictyaml.Checker) {
	validateText(c, "omeIngressGateway", g.OMEIngressGateway, validateGatewayName)
	validateOptional(c, "ingressDomain", g.IngressDomain, hostname.Validate)
}

func validateGateways(c *strictyaml.Checker, field string, gateways []Gateway) {
	for i := range gateways {
		gateways[i].validate(c.Below(strictyaml.Indexed(field, i)))
	}
}

func (p *InferencePool) validate(c *strictyaml.Checker) {
	switch {
	case p == nil:
	case p.Name != "" && p.EndpointPickerRef != nil:
		c.Errorf("", "name and endpointPickerRef are both set: set one of them")
	case p.Name != "":
		validateText(c, "name", p.Name, validateObjectName)
	case p.EndpointPickerRef != nil: // without both, it turns off the pool of a lower level
		ref := p.EndpointPickerRef
		c = c.Below("endpointPickerRef")
		validateText(c, "name", ref.Name, validatePickerName)
		validatePort(c, "port", int64(ref.Port))
		validateOptional(c, "failureMode", ref.FailureMode, validateEnum(FailClose, FailOpen))
	}
}

func (f *FallbackService) validate(c *strictyaml.Checker) {
	if f == nil {
		return
	}
	validateAnnotations(c, "annotations", f.Annotations)
	validateTexts(c, "copyAnnotations", f.CopyAnnotations, validateCopiedAnnotation)
	validateRemoved(c, f.AnnotationPrefixes)
	validateOptional(c, "suffix", f.Suffix, validateSuffix)
	validateOptional(c, "type", f.Type, validateEnum("ClusterIP", "NodePort", "LoadBalancer"))
}

// maxSuffix leaves at least 43 of the 63 characters of a Service name for the name of the InferenceService.
const maxSuffix = 20

func validateSuffix(suffix string) error {
	if problems := validation.IsDNS1035Label("a" +
		suffix); len(problems) > 0 || !strings.HasPrefix(suffix, "-") || len(suffix) > maxSuffix {
		return fmt.Errorf("%q must be a dash followed by letters and digits, with at most %d characters", suffix, maxSuffix)
	}
	if slices.ContainsFunc(isvc.Roles, func(r isvc.Role) bool { return suffix == "-"+string(r) }) {
		return fmt.Errorf("%q is reserved for a Service of OME", suffix)
	}
	return nil
}

// validateLabels rejects reserved labels: OME deletes objects with its labels, and the labels of this program identify its objects.
func validateLabels(c *strictyaml.Checker, field string, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		problems := append(content.IsLabelKey(key), content.IsLabelValue(labels[key])...)
		if key == "component" || IsReserved(key) {
			problems = append(problems, "the key is reserved")
		}
		c.Require(len(problems) == 0, field+"."+key, "%s: %s", labels[key], strings.Join(problems, ", "))
	}
}

func validateAnnotations(c *strictyaml.Checker, field string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		problems := content.IsLabelKey(strings.ToLower(key))
		if IsReserved(key) {
			problems = append(problems, "the key is reserved")
		}
		if key == ingressclass.AnnotationClass {
			problems = append(problems, "use ingressClassName")
		}
		c.Require(len(problems) == 0, field+"."+key, "%s", strings.Join(problems, ", "))
	}
}

// IsReserved reports whether OME or this controller defines a label or annotation.
func IsReserved(key string) bool {
	domain, _, found := strings.Cut(key, "/")
	return found && (isWithin(domain, "ome.io") || isWithin(domain, "fairlead.dev"))
}

// validateAllowedDomain validates a domain, which may be a template with the field Namespace.
func validateAllowedDomain(text string) error {
	_, err := allowedDomain(text, "namespace")
	return err
}

func validateSeconds(c *strictyaml.Checker, field string, n *int64) {
	c.Require(valueOf(n) >= 0, field, "%d is negative", valueOf(n))
	c.Require(valueOf(n) <= maxSeconds, field, "%d is more than 30 days", valueOf(n))
}

func validateObjectName(name string) error {
	return quoteProblem(name, validation.IsDNS1123Subdomain(name))
}

// quoteProblem returns the first problem of a text.
func quoteProblem(text string, problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s", text, problems[0])
}

// validatePickerName validates the name of a Service, or a template that renders such a name.
func validatePickerName(name string) error {
	if strings.Contains(name, "{{") {
		return validateTemplate(name)
	}
	return quoteProblem(name, validation.IsDNS1123Label(name))
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
	return quoteProblem(text, validation.IsHTTPHeaderName(text))
}

func validateEnum(allowed ...string) func(string) error {
	return func(s string) error {
		if slices.Contains(allowed, s) {
			return nil
		}
		return fmt.Errorf("%q is not one of %s", s, strings.Join(allowed, ", "))
	}
}

// validateCopiedKey rejects an item of a list of keys to copy that is not a valid key, or that is never copied.
func validateCopiedKey(item string) error {
	sample := strings.ToLower(item)
	if item == "*" || strings.HasSuffix(item, "/*") {
		sample = strings.TrimSuffix(sample, "*") + "any"
	}
	if neverCopied(item) {
		return fmt.Errorf("%q: this key is never copied: OME, this controller or a deployment tool would act on the copy", item)
	}
	if problems := validation.IsQualifiedName(sample); len(problems) > 0 {
		return fmt.Errorf("%q: must be a key, prefix/* or *: %s", item, problems[0])
	}
	return nil
}

// validateCopiedAnnotation also rejects annotations that this controller computes: a copy would have no effect.
func validateCopiedAnnotation(item string) error {
	if err := validateCopiedKey(item); err != nil {
		return err
	}
	if setting, found := computedAnnotations()[item]; found {
		return fmt.Errorf("%q: this controller sets this annotation: use %s", item, setting)
	}
	return nil
}

// validateRemoved rejects a key of earlier releases. Ignoring the key would copy annotations that its list excluded.
func validateRemoved(c *strictyaml.Checker, list []string) {
	c.Require(list == nil, "annotationPrefixes",
		"it is no longer supported: list keys in copyAnnotations, or prefix/* for all keys with a prefix")
}
