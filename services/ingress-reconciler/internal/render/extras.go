package render

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	inferencev1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"

	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

// addPoolAndFallback adds the InferencePool that routes refer to, and the fallback Service.
func (r *renderer) addPoolAndFallback(p *plan.Plan) {
	if p.Pool != nil {
		r.addObject(InferencePools, plan.Entry, r.inferencePool(p.Pool), nil)
	}
	if p.Fallback != nil {
		r.addObject(Services, plan.Entry, r.fallbackService(p.Fallback), nil)
	}
}

func (r *renderer) inferencePool(p *plan.Pool) *inferencev1.InferencePool {
	selector := map[inferencev1.LabelKey]inferencev1.LabelValue{}
	for key, value := range p.Selector {
		selector[inferencev1.LabelKey(key)] = inferencev1.LabelValue(value)
	}
	return &inferencev1.InferencePool{
		TypeMeta:   metav1.TypeMeta{APIVersion: InferencePools.GroupVersion().String(), Kind: "InferencePool"},
		ObjectMeta: r.objectMeta(p.Name, nil),
		Spec: inferencev1.InferencePoolSpec{
			Selector:    inferencev1.LabelSelector{MatchLabels: selector},
			TargetPorts: []inferencev1.Port{{Number: inferencev1.PortNumber(p.TargetPort)}},
			EndpointPickerRef: &inferencev1.EndpointPickerRef{
				Kind: "Service", Name: inferencev1.ObjectName(p.Picker.Name),
				Port:        &inferencev1.Port{Number: inferencev1.PortNumber(p.Picker.Port)},
				FailureMode: inferencev1.EndpointPickerFailureMode(p.Picker.FailureMode),
			},
		},
	}
}

func (r *renderer) fallbackService(f *plan.Fallback) *corev1.Service {
	target := intstr.FromInt32(f.TargetPort.Number)
	if f.TargetPort.Name != "" {
		target = intstr.FromString(f.TargetPort.Name)
	}
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: r.objectMeta(f.Name, f.Annotations),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceType(f.Type), Selector: f.Selector,
			Ports: []corev1.ServicePort{{
				Name: "http", Port: f.Port, TargetPort: target, Protocol: corev1.ProtocolTCP,
				AppProtocol: ptr.To(cmp.Or(f.AppProtocol, "http")),
			}},
		},
	}
}
