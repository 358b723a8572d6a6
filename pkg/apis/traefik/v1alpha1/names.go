// Package v1alpha1 has the names of Traefik's custom resources.
package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// SchemeGroupVersion is their group and version.
var SchemeGroupVersion = schema.GroupVersion{Group: "traefik.io", Version: "v1alpha1"}

// Resources returns all of them. With its provider for custom resources, Traefik waits at its start until it has listed each one.
func Resources() []string {
	return []string{
		"ingressroutes", "ingressroutetcps", "ingressrouteudps", "middlewares", "middlewaretcps", "serverstransports", "serverstransporttcps",
		"tlsoptions", "tlsstores", "traefikservices",
	}
}

// Definitions returns the names of their CustomResourceDefinitions.
func Definitions() []string {
	names := Resources()
	for i := range names {
		names[i] += "." + SchemeGroupVersion.Group
	}
	return names
}
