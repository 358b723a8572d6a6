package ingressclass

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Middlewares are the objects of Traefik that change requests.
var Middlewares = schema.GroupVersionResource{Group: "traefik.io", Version: "v1alpha1", Resource: "middlewares"}

// annotationMiddlewares names the Middlewares that a request passes through, in their order.
const annotationMiddlewares = "traefik.ingress.kubernetes.io/router.middlewares"

// Traefik is Traefik's provider for Ingresses. It neither buffers bodies nor ends requests by itself. None of its annotations
// is safe: they choose entry points, priorities, TLS options and Middlewares of any namespace.
var Traefik = Controller{
	Name:            "Traefik",
	SpecControllers: []string{"traefik.io/ingress-controller"},
	// A Prefix of Traefik is one of characters: "/a" would take "/ab". So the Ingress has the path exactly, and below it.
	StripPrefix: func(p Prefix) Stripped {
		chain := p.Namespace + "-" + p.Name + "@kubernetescrd"
		if others := p.Annotations[annotationMiddlewares]; others != "" { // they see the whole path
			chain = others + "," + chain
		}
		return Stripped{
			Paths:       []networkingv1.HTTPIngressPath{path(networkingv1.PathTypeExact, p.bare()), path(networkingv1.PathTypePrefix, p.Path)},
			Annotations: map[string]string{annotationMiddlewares: chain},
			Companion: &Companion{Resource: Middlewares, Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": Middlewares.GroupVersion().String(), "kind": "Middleware",
				"metadata": map[string]any{"namespace": p.Namespace, "name": p.Name},
				"spec":     map[string]any{"stripPrefix": map[string]any{"prefixes": []any{p.bare()}}},
			}}},
		}
	},
}
