package ingressclass

// Istio is Istio's reader of Ingresses. It reads no annotations: it neither buffers bodies nor ends requests by itself, and it
// cannot rewrite paths.
var Istio = Controller{
	Name:            "Istio",
	SpecControllers: []string{"istio.io/ingress-controller"},
}
