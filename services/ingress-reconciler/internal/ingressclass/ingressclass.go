// Package ingressclass knows what the common Ingress controllers can do beyond what Ingress says, and by which annotations.
//
// A controller is known by the field controller of its IngressClass, which is its author's and never a user's choice. That of
// ingress-nginx is also what Traefik's NGINX provider answers to, which reads the same annotations.
package ingressclass

import (
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
)

// Controller is a kind of Ingress controller.
type Controller string

// The controllers that are known. Others do what Ingress says, and no more.
const (
	Unknown        Controller = ""
	IngressNGINX   Controller = "ingress-nginx"   // and readers of its annotations, such as Traefik's NGINX provider
	NGINX          Controller = "nginx"           // of F5
	Traefik        Controller = "traefik"         // its provider for Ingress
	HAProxy        Controller = "haproxy"         // of HAProxy Technologies
	HAProxyIngress Controller = "haproxy-ingress" // of the community
	Contour        Controller = "contour"
	Istio          Controller = "istio"
)

// controllers are the values of spec.controller, or what they begin with if they end in "/".
var controllers = map[string]Controller{
	"k8s.io/ingress-nginx":                 IngressNGINX,
	"nginx.org/ingress-controller":         NGINX,
	"traefik.io/ingress-controller":        Traefik,
	"haproxy.org/ingress-controller":       HAProxy,
	"haproxy.org/ingress-controller/":      HAProxy,
	"haproxy-ingress.github.io/controller": HAProxyIngress,
	"projectcontour.io/":                   Contour,
	"istio.io/ingress-controller":          Istio,
}

// Known returns the kind of controller that an IngressClass names.
func Known(controller string) Controller {
	for name, c := range controllers {
		if controller == name || strings.HasSuffix(name, "/") && strings.HasPrefix(controller, name) {
			return c
		}
	}
	return Unknown
}

// Rewrites reports whether the controller can take a prefix away from a path, on a host that several Ingresses share. That of
// F5 can do the one, and gives a host to a single Ingress.
func (c Controller) Rewrites() bool {
	return slices.Contains([]Controller{IngressNGINX, Traefik, HAProxy, HAProxyIngress}, c)
}

// Find returns the class of that name, or the cluster's default if the name is nil: of several the newest, as the API server
// takes it. It returns nil if there is none.
func Find(classes []*networkingv1.IngressClass, name *string) *networkingv1.IngressClass {
	var found *networkingv1.IngressClass
	for _, c := range classes {
		switch {
		case name != nil && c.Name == *name:
			return c
		case name != nil || c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true":
		case found == nil || newer(c, found):
			found = c
		}
	}
	return found
}

// newer reports whether the API server prefers one default class to another.
func newer(a, b *networkingv1.IngressClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}
