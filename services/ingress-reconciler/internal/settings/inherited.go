package settings

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/utils/ptr"
)

// Inherited is the configuration in OME's ConfigMap.
type Inherited struct {
	Values

	DisableIngressCreation   bool                         `json:"disableIngressCreation"` // OME creates no routes
	NamespaceIngressGateways map[string]NamespaceGateways `json:"namespaceIngressGateways,omitempty"`
}

// ParseInherited parses the key ingress of OME's ConfigMap as OME does: JSON, with case-insensitive keys. Keys that only OME uses
// may have any value. A domain inside the cluster domain, which OME's chart sets by default, counts as unset.
func ParseInherited(text []byte, clusterDomain string) (*Inherited, error) {
	in := &Inherited{}
	if err := json.Unmarshal(text, in); err != nil {
		return nil, fmt.Errorf("parse OME's ingress configuration: %w", err)
	}
	in.Strategy = "" // OME has no such key
	in.normalize()
	local := func(domain string) bool { return isWithin(domain, "svc."+clusterDomain) }
	if d := in.IngressDomain; d != nil && local(*d) {
		in.IngressDomain = nil
	}
	for _, g := range in.NamespaceIngressGateways {
		if g.Primary != nil && local(g.Primary.IngressDomain) {
			g.Primary.IngressDomain = ""
		}
	}
	return in, nil
}

// mergeInherited returns values merged over OME's configuration for the services of a namespace: for HTTPRoutes, and for all other kinds of
// objects.
//
// OME 1.3 reads these keys for HTTPRoutes only (builders/httproute_builder.go); its Ingresses have a host for each service
// and no timeouts, and it has no VirtualServices:
//
//	perISVCSubdomain, sharedHostPrefix, defaultRouteTimeoutSeconds
//	namespaceIngressGateways.<namespace>.primary.ingressDomain
//
// OME's chart always sets the first three, so a shared host is not necessarily the choice of an administrator. An Ingress of
// Contour, F5 or an unknown controller cannot serve a shared host.
func (in *Inherited) mergeInherited(values Values, namespace string) (httpRoute, other Values) {
	if in == nil {
		return values, values
	}
	base := in.Values
	httpRoute = values.mergeOver(base.forNamespace(namespace, in.NamespaceIngressGateways))
	base.PerISVCSubdomain, base.SharedHostPrefix, base.DefaultRouteTimeoutSeconds = nil, nil, nil
	return httpRoute, values.mergeOver(base)
}

// setHosting sets the fields that OME's configuration sets for HTTPRoutes only.
func (s *Settings) setHosting(v *Values) {
	s.Domain, s.Subdomain = valueOf(v.IngressDomain), ptr.Deref(v.PerISVCSubdomain, true)
	s.SharedHostPrefix = ptr.Deref(v.SharedHostPrefix, defaultSharedHostPrefix)
	s.Timeout = time.Duration(valueOf(v.DefaultRouteTimeoutSeconds)) * time.Second
}

// ForStrategy returns the settings for one kind of objects. ResolveSettings returns the settings for HTTPRoutes.
func (s Settings) ForStrategy(strategy Strategy) Settings {
	if strategy != HTTPRoute && s.other != nil {
		s.setHosting(s.other)
	}
	return s
}
