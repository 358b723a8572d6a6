package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/ingress-reconciler/internal/backend"
	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// warnOfNoPods adds a warning for a Service whose selector no pod has, unless the component may have no pods.
func (b *builder) warnOfNoPods(r isvc.Role, to Backend) {
	c := b.Service.Components[r]
	if !b.Podless[to.Name] || to.Pool != "" || to.Knative != "" || c != nil && c.MinReplicas != nil && *c.MinReplicas == 0 {
		return
	}
	i := slices.IndexFunc(b.Services, func(s *corev1.Service) bool { return s.Name == to.Name })
	b.addWarning(r, ReasonNoPods, "Service %s selects no pods, so requests fail: no pod has the labels %s", to.Name,
		metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: b.Services[i].Spec.Selector}))
}

// checkProtocol adds a reason for a backend that speaks only gRPC: a warning if the data plane speaks gRPC to it.
func (b *builder) checkProtocol(e *Exposure) {
	if !e.Backend.GRPC || e.Backend.Knative != "" {
		return
	}
	text := fmt.Sprintf("port %s of Service %s speaks only gRPC: clients of the REST API cannot use it",
		cmp.Or(e.Backend.PortName, fmt.Sprint(e.Backend.Port)), e.Backend.Name)
	remedy := fmt.Sprintf(`set servicePortAppProtocols: {%s: kubernetes.io/h2c} in the InferenceService`, e.Backend.PortName)
	c := e.Class.Controller
	speaks := e.Backend.SpeaksHTTP2()
	switch {
	case b.plan.Strategy == settings.VirtualService: // Istio speaks the client's protocol to a port whose name says none, such as grpc1
		speaks = true
	case b.plan.Strategy == settings.HTTPRoute:
	case c != nil && c.GRPC != nil:
		speaks = true
	case c == &ingressclass.Traefik:
		speaks = e.Backend.Scheme == "h2c"
		remedy = "annotate the InferenceService with " + backend.AnnotationScheme + ": h2c"
	default:
		speaks, remedy = false, "use HTTPRoutes, or an HTTP port"
	}
	if speaks {
		b.addWarning(e.Role, ReasonGRPCOnly, "%s", text)
		return
	}
	b.addReason(e.Role, ReasonGRPCOnly, "%s, and the data plane speaks HTTP/1.1 to it: %s", text, remedy)
}
