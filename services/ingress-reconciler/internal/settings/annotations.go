package settings

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Annotations of OME that say how a service is to be exposed.
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

	// AnnotationPool names an InferencePool. OME has no word for it.
	AnnotationPool = "fairlead.dev/inference-pool"
)

// annotated reads the annotations of a service as OME does: most are nothing if they are empty, and what is not "true" is
// false. Unlike OME it says what it cannot read.
func annotated(annotations map[string]string) (Values, error) {
	var v Values
	text := func(key string) *string {
		if s := annotations[key]; s != "" {
			return &s
		}
		return nil
	}
	present := func(key string) *string { // an empty one turns something off
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
		yes := s == "true"
		return &yes
	}
	v.DomainTemplate, v.IngressDomain, v.URLScheme = text(annotationDomainTemplate), text(annotationDomain), text(annotationURLScheme)
	v.OMEIngressGateway = text(annotationGateway)
	v.PathTemplate, v.SharedHostPrefix = present(annotationPathTemplate), present(annotationSharedHostPrefix)
	v.DisableIstioVirtualHost, v.PerISVCSubdomain = boolean(annotationDisableIstio), boolean(annotationPerISVCSubdomain)
	if s, ok := annotations[annotationAdditionalDomains]; ok {
		domains := []string{}
		for d := range strings.SplitSeq(s, ",") {
			if d = strings.TrimSpace(d); d != "" {
				domains = append(domains, d)
			}
		}
		v.AdditionalIngressDomains = &domains
	}
	if s := annotations[annotationAdditionalGateways]; s != "" {
		if err := json.Unmarshal([]byte(s), &v.AdditionalIngressGateways); err != nil {
			return v, fmt.Errorf("annotation %s: %w", annotationAdditionalGateways, err)
		}
	}
	if name := annotations[AnnotationPool]; name != "" {
		v.InferencePool = &InferencePool{Name: name}
	}
	if err := v.validate("by annotations, "); err != nil {
		return v, err
	}
	return v, nil
}
