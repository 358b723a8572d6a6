package ingressclass

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	traefik "fairlead.dev/pkg/apis/traefik/v1alpha1"
)

// Middlewares is the resource of Traefik's Middlewares, which modify requests.
var Middlewares = traefik.SchemeGroupVersion.WithResource("middlewares")

// annotationMiddlewares lists the Middlewares of an Ingress, in the order in which they process a request.
const annotationMiddlewares = "traefik.ingress.kubernetes.io/router.middlewares"

// Traefik is Traefik's provider for Ingresses. It does not buffer bodies, and has no request timeout by default. None of its
// annotations is safe: they select entry points, priorities, TLS options and Middlewares of any namespace.
var Traefik = Controller{
	Name:            "Traefik",
	SpecControllers: []string{"traefik.io/ingress-controller"},
	// only with its provider kubernetesCRD; without the Middleware, Traefik does not serve the Ingress
	Reads: traefik.SchemeGroupVersion.String(),
	// Traefik compares prefixes by character, so "/a" would match "/ab". The Ingress has an Exact path "/a" and a Prefix "/a/".
	StripPrefix: func(p Prefix) Stripped {
		chain := p.Namespace + "-" + p.Name + "@kubernetescrd"
		if others := p.Annotations[annotationMiddlewares]; others != "" { // the other Middlewares come first, and see the whole path
			chain = others + "," + chain
		}
		return Stripped{
			Paths: []networkingv1.HTTPIngressPath{
				ingressPath(networkingv1.PathTypeExact, p.withoutSlash()), ingressPath(networkingv1.PathTypePrefix, p.Path),
			},
			Annotations: map[string]string{annotationMiddlewares: chain},
			Companion: &Companion{Resource: Middlewares, Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": traefik.SchemeGroupVersion.String(), "kind": "Middleware",
				"metadata": map[string]any{"namespace": p.Namespace, "name": p.Name},
				"spec":     map[string]any{"stripPrefix": map[string]any{"prefixes": []any{p.withoutSlash()}}},
			}}},
		}
	},
}
