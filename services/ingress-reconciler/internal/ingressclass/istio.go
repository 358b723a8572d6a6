package ingressclass

// Istio is Istio's ingress controller. It does not read annotations, and cannot rewrite paths. It does not buffer bodies, and has no
// request timeout by default.
var Istio = Controller{
	Name:            "Istio",
	SpecControllers: []string{"istio.io/ingress-controller"},
}
