package settings

import (
	"encoding/json"
	"fmt"
	"time"
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

// hosting is the part of Settings that OME's configuration sets for HTTPRoutes only.
type hosting struct {
	domain           string
	subdomain        bool
	sharedHostPrefix string
	timeout          time.Duration
}

func (v *Values) hostingSettings() hosting {
	h := hosting{
		domain: valueOf(v.IngressDomain), subdomain: v.PerISVCSubdomain == nil || *v.PerISVCSubdomain,
		sharedHostPrefix: defaultSharedHostPrefix, timeout: time.Duration(valueOf(v.DefaultRouteTimeoutSeconds)) * time.Second,
	}
	if v.SharedHostPrefix != nil {
		h.sharedHostPrefix = *v.SharedHostPrefix
	}
	return h
}

func (s *Settings) setHosting(h hosting) {
	s.Domain, s.Subdomain, s.SharedHostPrefix, s.Timeout = h.domain, h.subdomain, h.sharedHostPrefix, h.timeout
}

// ForStrategy returns the settings for one kind of objects. ResolveSettings returns the settings for HTTPRoutes.
func (s Settings) ForStrategy(strategy Strategy) Settings {
	if strategy != HTTPRoute && s.other != nil {
		s.setHosting(*s.other)
	}
	return s
}
