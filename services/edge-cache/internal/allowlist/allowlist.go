// Package allowlist lists what an ingress controller may ask for: the kinds that are cached, and the requests that are passed on.
//
// A profile is the allow-list of one controller. It follows from what the controller's source code reads and writes. Everything else is
// forbidden, whatever the API server would say: the cache holds a token that can read more than its client should.
package allowlist

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
)

// Filter is what the pool changes in a kind.
type Filter string

const (
	None           Filter = ""
	EndpointSlices Filter = "endpointslices"
	Endpoints      Filter = "endpoints"
	Secrets        Filter = "secrets"
	ConfigMaps     Filter = "configmaps"
	Nodes          Filter = "nodes"
)

// Resource is a kind that is cached.
type Resource struct {
	Group, Version, Name string

	// Custom kinds exist as JSON only.
	Custom bool
	Filter Filter
	// ClusterScoped kinds have no namespace. Own restricts a kind to the controller's own namespace.
	ClusterScoped, Own bool
	FieldSelector      string // of the reflector: objects that no controller needs
}

// Path returns group/version/resource, or version/resource for the core group.
func (r Resource) Path() string {
	if r.Group == "" {
		return r.Version + "/" + r.Name
	}
	return r.Group + "/" + r.Version + "/" + r.Name
}

// Rule allows requests that are passed on to the API server.
type Rule struct {
	Group, Name string // Name is resource or resource/subresource
	Verbs       []string
	Own         bool // only in the controller's own namespace
}

// Rules are those of one list.
type Rules []Rule

// List is the allow-list of a controller.
type List struct {
	Resources []Resource
	Writes    Rules
	// Reads are of kinds without a store: a get is passed on, and its answer cached.
	Reads Rules
	// SecretFields are where the controller finds the names of Secrets, besides spec.tls of Ingresses and fields of custom resources.
	SecretFields SecretFields
	// NamespaceSetting names the setting with which the controller lists each of some namespaces alone.
	NamespaceSetting string
}

// SecretFields are where a controller finds the names of Secrets.
type SecretFields struct {
	// Annotations of Ingresses and Services, without the prefix, which some controllers let their administrator choose.
	Annotations []string
	// Keys of the ConfigMaps in the controller's own namespace, besides those of Annotations: they can have a default for all Services.
	Keys []string
}

// IsSecretAnnotation reports whether the value of an annotation names a Secret. What ends in "secret" does, whatever the profile.
func (n SecretFields) IsSecretAnnotation(name string) bool {
	name = name[strings.LastIndex(name, "/")+1:]
	return slices.Contains(n.Annotations, name) || strings.HasSuffix(name, "secret")
}

// IsSecretKey reports whether a key of a ConfigMap names a Secret.
func (n SecretFields) IsSecretKey(key string) bool {
	return slices.Contains(n.Keys, key) || n.IsSecretAnnotation(key)
}

var (
	services       = Resource{Version: "v1", Name: "services"}
	endpoints      = Resource{Version: "v1", Name: "endpoints", Filter: Endpoints}
	endpointSlices = Resource{Group: "discovery.k8s.io", Version: "v1", Name: "endpointslices", Filter: EndpointSlices}
	nodes          = Resource{Version: "v1", Name: "nodes", Filter: Nodes, ClusterScoped: true}
	namespaces     = Resource{Version: "v1", Name: "namespaces", ClusterScoped: true}
	ingresses      = Resource{Group: "networking.k8s.io", Version: "v1", Name: "ingresses"}
	ingressClasses = Resource{Group: "networking.k8s.io", Version: "v1", Name: "ingressclasses", ClusterScoped: true}
	secrets        = Resource{Version: "v1", Name: "secrets", Filter: Secrets, FieldSelector: "type!=helm.sh/release.v1"}
	configMaps     = Resource{Version: "v1", Name: "configmaps", Own: true}
	// namedConfigMaps are those that custom resources name: authorities for TLS.
	namedConfigMaps = Resource{Version: "v1", Name: "configmaps", Filter: ConfigMaps}
	ownPods         = Resource{Version: "v1", Name: "pods", Own: true}
	pods            = Resource{Version: "v1", Name: "pods"}

	ingressStatus = Rule{Group: "networking.k8s.io", Name: "ingresses/status", Verbs: []string{"update", "patch"}}
	events        = Rule{Name: "events", Verbs: []string{"create", "patch"}}
	newEvents     = Rule{Group: "events.k8s.io", Name: "events", Verbs: []string{"create", "patch"}}
	leases        = Rule{Group: "coordination.k8s.io", Name: "leases", Verbs: []string{"create", "update", "patch"}, Own: true}
	readLeases    = Rule{Group: "coordination.k8s.io", Name: "leases", Verbs: []string{"get"}, Own: true}

	base = []Resource{services, endpointSlices, nodes, ingresses, ingressClasses, secrets}
)

// profiles are the allow-lists by name.
var profiles = map[string]List{
	"traefik": {
		Resources: base, Writes: []Rule{ingressStatus},
		NamespaceSetting: "set Traefik's --providers.kubernetesIngress.namespaces to the same namespaces",
	},
	// With its provider for custom resources, Traefik waits at its start until it has listed all of them.
	"traefik-crd": {
		Resources: slices.Concat(base, traefikKinds(), []Resource{namedConfigMaps}), Writes: []Rule{ingressStatus},
		NamespaceSetting: "set Traefik's --providers.kubernetesIngress.namespaces and --providers.kubernetesCRD.namespaces to the same " +
			"namespaces",
	},
	"haproxytech": {
		Resources:        slices.Concat(base, []Resource{configMaps, namespaces, ownPods}),
		Writes:           []Rule{ingressStatus, events, newEvents},
		NamespaceSetting: "give the controller --namespace-whitelist once for each of them",
		SecretFields: SecretFields{
			Annotations: []string{"auth-secret", "server-ca", "server-crt"},
			Keys:        []string{"ssl-certificate", "client-ca", "generate-certificates-signer", "prometheus-endpoint-auth-secret"},
		},
	},
	"haproxy-ingress": {
		Resources: slices.Concat(base, []Resource{endpoints, configMaps, namespaces, ownPods}),
		Writes:    []Rule{ingressStatus, events, newEvents, leases}, Reads: []Rule{readLeases},
		NamespaceSetting: "the controller lists one namespace or all: give one to --namespaces and to its --watch-namespace, or neither",
		SecretFields: SecretFields{
			Annotations: []string{"auth-secret", "auth-tls-secret", "secure-crt-secret", "secure-verify-ca-secret"},
			Keys:        []string{"auth-tls-default-secret", "ssl-dh-param", "stats-ssl-cert"},
		},
	},
	"nginx-f5": {
		Resources: slices.Concat(base, []Resource{configMaps, namespaces, pods}),
		Writes:    []Rule{ingressStatus, events, newEvents, leases}, Reads: []Rule{readLeases},
		NamespaceSetting: "set the controller's -watch-namespace to the same namespaces",
		SecretFields: SecretFields{
			Annotations: []string{"basic-auth-secret", "jwt-key"},
			Keys:        []string{"license-token-secret-name", "ssl-certificate-secret-name", "ssl-trusted-certificate-secret-name"},
		},
	},
	"ingress-nginx": {
		Resources: slices.Concat(base, []Resource{configMaps, namespaces, ownPods}),
		Writes:    []Rule{ingressStatus, events, newEvents, leases}, Reads: []Rule{readLeases},
		NamespaceSetting: "the controller lists one namespace or all: give one to --namespaces and to its --watch-namespace, or neither",
		SecretFields: SecretFields{
			Annotations: []string{"auth-secret", "auth-tls-secret", "proxy-ssl-secret", "secure-verify-ca-secret"},
			Keys:        []string{"ssl-dh-param"},
		},
	},
	"custom": {NamespaceSetting: "let the controller list each of them alone"},
}

// traefikKinds returns the custom resources of Traefik.
func traefikKinds() []Resource {
	var kinds []Resource
	for _, name := range traefik.Resources() {
		kinds = append(kinds,
			Resource{Group: traefik.SchemeGroupVersion.Group, Version: traefik.SchemeGroupVersion.Version, Name: name, Custom: true})
	}
	return kinds
}

// ProfileNames returns the names of all profiles.
func ProfileNames() []string { return slices.Sorted(maps.Keys(profiles)) }

// ForProfile returns an allow-list with additional resources in the form of ParseResource.
func ForProfile(name string, additional []string) (List, error) {
	found, ok := profiles[name]
	if !ok {
		return List{}, fmt.Errorf("profile %q is not one of %s", name, strings.Join(ProfileNames(), ", "))
	}
	list := found
	list.Resources = slices.Clone(found.Resources)
	for _, text := range additional {
		r, err := ParseResource(text)
		if err != nil {
			return List{}, err
		}
		list.setResource(r)
	}
	if !slices.ContainsFunc(list.Resources, func(r Resource) bool { return r.Filter == Nodes }) {
		list.setResource(nodes) // the pool follows from it
	}
	return list, nil
}

// setResource adds a resource, or replaces it.
func (l *List) setResource(r Resource) {
	at := slices.IndexFunc(l.Resources, func(o Resource) bool { return o.Path() == r.Path() })
	if at < 0 {
		l.Resources = append(l.Resources, r)
		return
	}
	l.Resources[at] = r
}

// builtin are the kinds whose encoding and scope the program knows.
var builtin = []Resource{services, endpoints, endpointSlices, nodes, namespaces, ingresses, ingressClasses, secrets, configMaps, pods}

// ParseResource returns the resource of a text in the form [group/]version/resource[@own|@cluster]. Only custom resources can be @cluster:
// the scope of all others is known.
func ParseResource(text string) (Resource, error) {
	path, suffix, hasSuffix := strings.Cut(text, "@")
	parts := strings.Split(path, "/")
	if hasSuffix && !slices.Contains([]string{"own", "cluster"}, suffix) || len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return Resource{}, fmt.Errorf("resource %q is not [group/]version/resource[@own|@cluster]", text)
	}
	r := Resource{Version: parts[len(parts)-2], Name: parts[len(parts)-1], Custom: true}
	if len(parts) == 3 {
		r.Group = parts[0]
	}
	if at := slices.IndexFunc(builtin, func(b Resource) bool { return b.Path() == r.Path() }); at >= 0 {
		r = builtin[at]
	} else if !strings.Contains(r.Group, ".") || isCore(r.Group) {
		return Resource{}, fmt.Errorf("resource %q is built in, and not one of those that an ingress controller reads", text)
	}
	return r.withSuffix(suffix)
}

// withSuffix returns the resource with the suffix of its text.
func (r Resource) withSuffix(suffix string) (Resource, error) {
	switch {
	case suffix == "cluster" && !r.Custom:
		return Resource{}, fmt.Errorf("resource %q is built in: @cluster is for custom resources", r.Path())
	case suffix == "own" && r.ClusterScoped:
		return Resource{}, fmt.Errorf("resource %q has no namespace: remove @own", r.Path())
	}
	r.Own, r.ClusterScoped = suffix == "own", r.ClusterScoped || suffix == "cluster"
	return r, nil
}

// isCore reports whether a group is served by the API server itself. Gateway API and the like are custom resources.
func isCore(group string) bool {
	return slices.Contains([]string{
		"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
		"certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io", "flowcontrol.apiserver.k8s.io",
		"networking.k8s.io", "node.k8s.io", "rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io",
	}, group)
}

// Scope is the namespace of a request, relative to the controller.
type Scope uint8

const (
	OtherNamespace Scope = iota
	OwnNamespace
)

// AllowsRequest reports whether one of the rules allows a request to be passed on.
func (r Rules) AllowsRequest(group, resource, verb string, in Scope) bool {
	return slices.ContainsFunc(r, func(rule Rule) bool {
		return rule.Group == group && rule.Name == resource && slices.Contains(rule.Verbs, verb) && (!rule.Own || in == OwnNamespace)
	})
}
