package render

import (
	"maps"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// addIngress adds the Ingress for an exposure, and the object that its controller needs to strip a path prefix. It always sets the
// class: an Ingress without a class in the applied configuration keeps the class that the API server defaulted, but loses the class
// if an earlier apply had set it.
func (r *renderer) addIngress(e *plan.Exposure) {
	name, class := r.objectName(settings.Ingress, e), e.Class.Name
	if live := r.liveObject(settings.Ingress, e); live != nil && class == "" {
		class = ptr.Deref(ingressclass.ClassName(live), "")
	}
	annotations := r.ingressAnnotations(e, name)
	paths := []networkingv1.HTTPIngressPath{{Path: trimSlash(e.Path), PathType: ptr.To(networkingv1.PathTypePrefix)}}
	if e.Path != "/" && e.Class.StripsPrefixes() {
		stripped := e.Class.Controller.StripPrefix(ingressclass.Prefix{
			Namespace: r.Service.Namespace, Name: name, Path: e.Path, Annotations: annotations,
		})
		paths, annotations = stripped.Paths, settings.MergeMaps(annotations, stripped.Annotations)
		if c := stripped.Companion; c != nil {
			r.addObject(c.Resource, e.Slot, c.Object, nil)
		}
	}
	for i := range paths {
		paths[i].Backend.Service = &networkingv1.IngressServiceBackend{
			Name: e.Backend.Name, Port: networkingv1.ServiceBackendPort{Number: e.Backend.Port},
		}
	}
	spec := networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: e.Host, IngressRuleValue: networkingv1.IngressRuleValue{
		HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths},
	}}}}
	if class != "" {
		spec.IngressClassName = &class
	}
	if e.TLSSecret != "" {
		spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{e.Host}, SecretName: e.TLSSecret}}
	}
	r.addObject(Ingresses, e.Slot, &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: r.objectMeta(name, annotations),
		Spec:       spec,
	}, e)
}

// ingressAnnotations returns the annotations of an Ingress, except those that strip a path prefix. The administrator's annotations
// override computed ones, and computed ones override copied ones.
func (r *renderer) ingressAnnotations(e *plan.Exposure, name string) map[string]string {
	copied := r.Settings.Copied.Annotations
	issuer := r.issuerAnnotation()
	if issuer != nil { // cert-manager rejects an Ingress with an Issuer and a ClusterIssuer
		copied = maps.Clone(copied)
		maps.DeleteFunc(copied, func(key, _ string) bool {
			return strings.HasPrefix(key, prefixIssuer) || key == annotationClusterIssuer
		})
	}
	if issuer != nil && r.Requester != nil {
		if oldest := r.Requester(e.Host, e.TLSSecret); oldest != nil && oldest.GetName() != name { // it requests the certificate for all
			issuer = nil
		}
	}
	var streaming map[string]string
	if c := e.Class.Controller; c != nil && c.Streaming != nil {
		streaming = c.Streaming(ingressclass.Streaming{Timeout: e.Timeout, MaxBody: r.Settings.MaxBody, Buffer: r.Settings.BufferBodies})
	}
	var protocol map[string]string
	if c := e.Class.Controller; c != nil && c.GRPC != nil && e.Backend.GRPC {
		protocol = c.GRPC(e.Backend.Name)
	}
	return settings.MergeMaps(copied, streaming, protocol, issuer, r.Settings.Annotations)
}

// Annotations of cert-manager. issuer-kind and issuer-group have the same prefix.
const (
	prefixIssuer            = "cert-manager.io/issuer"
	annotationClusterIssuer = "cert-manager.io/cluster-issuer"
)

// issuerAnnotation returns the annotation for the configured issuer of cert-manager, nil if no issuer is configured.
func (r *renderer) issuerAnnotation() map[string]string {
	kind, name, _ := strings.Cut(r.Settings.TLS.Issuer, "/")
	switch kind {
	case "Issuer":
		return map[string]string{prefixIssuer: name}
	case "ClusterIssuer":
		return map[string]string{annotationClusterIssuer: name}
	}
	return nil
}
