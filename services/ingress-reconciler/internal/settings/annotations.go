package settings

import (
	"encoding/json"
	"fmt"
	"strings"

	"fairlead.dev/pkg/strictyaml"
)

// Annotations of OME that configure how a service is exposed.
const (
	prefix = "ome.io/ingress-"

	annotationDomainTemplate     = prefix + "domain-template"
	annotationDomain             = prefix + "domain"
	annotationAdditionalDomains  = prefix + "additional-domains"
	annotationURLScheme          = prefix + "url-scheme"
	annotationPathTemplate       = prefix + "path-template"
	annotationDisableIstio       = prefix + "disable-istio-virtualhost"
	annotationDisableCreation    = prefix + "disable-creation"
	annotationGateway            = prefix + "gateway"
	annotationAdditionalGateways = prefix + "additional-gateways"
	annotationPerISVCSubdomain   = prefix + "per-isvc-subdomain"
	annotationSharedHostPrefix   = prefix + "shared-host-prefix"

	annotationIngressClass   = prefix + "class"         // only in OME's documentation
	annotationDisableIngress = "ome.io/disable-ingress" // only in OME's documentation

	// AnnotationPool names an InferencePool. OME has no such annotation.
	AnnotationPool = "fairlead.dev/inference-pool"
)

// Limits of lists in annotations. Each combination of a domain and a Gateway adds an object.
const (
	maxDomains  = 16
	maxGateways = 8
	maxText     = 8 << 10 // bytes of one annotation: enough for 16 names of 253 characters, or 8 Gateways with a domain
)

// LimitError means that an annotation exceeds a limit for one service.
type LimitError struct {
	Annotation, What string
	Count, Limit     int
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("annotation %s has %d %s: at most %d are allowed", e.Annotation, e.Count, e.What, e.Limit)
}

// annotatedDomains parses the list of domains, nil if the annotation is not set.
func annotatedDomains(annotations map[string]string) (*[]string, error) {
	text, ok := annotations[annotationAdditionalDomains]
	if !ok {
		return nil, nil // an unset list differs from an empty list
	}
	if n := strings.Count(text, ",") + 1; n > maxDomains {
		return nil, &LimitError{annotationAdditionalDomains, "domains", n, maxDomains}
	}
	domains := []string{}
	for d := range strings.SplitSeq(text, ",") {
		if d = strings.TrimSpace(d); d != "" {
			domains = append(domains, d)
		}
	}
	return &domains, nil
}

// annotatedGateways parses the list of Gateways, nil if the annotation is not set.
func annotatedGateways(annotations map[string]string) (*[]Gateway, error) {
	text := annotations[annotationAdditionalGateways]
	if text == "" {
		return nil, nil // an unset list differs from an empty list
	}
	if len(text) > maxText {
		return nil, &LimitError{annotationAdditionalGateways, "bytes", len(text), maxText}
	}
	var gateways []Gateway
	if err := json.Unmarshal([]byte(text), &gateways); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", annotationAdditionalGateways, err)
	}
	if len(gateways) > maxGateways {
		return nil, &LimitError{annotationAdditionalGateways, "Gateways", len(gateways), maxGateways}
	}
	return &gateways, nil
}

// isPrivate reports whether the owner of a service wants no routes. A value that is no clear false counts: nothing private becomes public
// by a typing error.
func isPrivate(annotations map[string]string) bool {
	marked := annotations[annotationDisableIngress]
	return marked != "" && !strings.EqualFold(marked, "false")
}

// ignoredAnnotations explains the annotations that this program does not obey.
func ignoredAnnotations(annotations map[string]string) []string {
	var explanations []string
	if annotations[annotationIngressClass] != "" {
		explanations = append(explanations, "annotation "+annotationIngressClass+" has no effect: an administrator sets ingressClassName")
	}
	if annotations[annotationDisableCreation] == "true" {
		explanations = append(explanations,
			"annotation "+annotationDisableCreation+" turns off OME's routes only: to expose the service nowhere, annotate it with "+
				annotationDisableIngress+`: "true"`)
	}
	return explanations
}

// annotationValues parses the annotations of a service as OME does: most empty annotations count as unset, and every value but "true" is
// false. Unlike OME, it returns an error for an invalid value.
func annotationValues(annotations map[string]string) (Values, error) {
	var v Values
	text := func(key string) *string {
		if s := annotations[key]; s != "" {
			return &s
		}
		return nil
	}
	present := func(key string) *string { // an empty annotation turns the setting off
		if s, ok := annotations[key]; ok {
			return &s
		}
		return nil
	}
	boolean := func(key string) *bool {
		s, ok := annotations[key]
		if !ok {
			return nil
		}
		value := s == "true"
		return &value
	}
	v.DomainTemplate, v.IngressDomain, v.URLScheme = text(annotationDomainTemplate), text(annotationDomain), text(annotationURLScheme)
	v.OMEIngressGateway = text(annotationGateway)
	v.PathTemplate, v.SharedHostPrefix = present(annotationPathTemplate), present(annotationSharedHostPrefix)
	v.DisableIstioVirtualHost, v.PerISVCSubdomain = boolean(annotationDisableIstio), boolean(annotationPerISVCSubdomain)
	var err error
	if v.AdditionalIngressDomains, err = annotatedDomains(annotations); err != nil {
		return v, err
	}
	if v.AdditionalIngressGateways, err = annotatedGateways(annotations); err != nil {
		return v, err
	}
	if name := annotations[AnnotationPool]; name != "" {
		v.InferencePool = &InferencePool{Name: name}
	}
	var check strictyaml.Checker
	if v.validate(&check); check.AllProblems() != nil {
		return v, fmt.Errorf("annotations: %w", check.AllProblems())
	}
	return v, nil
}
