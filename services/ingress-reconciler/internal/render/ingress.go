package render

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"fairlead.dev/services/ingress-reconciler/internal/ingressclass"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// never is a timeout for controllers that have no word for none.
const never = 7 * 24 * time.Hour

// ingress adds the Ingress of a way in, with what its controller has to be told by annotations: that answers are streams
// which may take long, that prompts may be large, and that a path is to be taken away.
func (r *renderer) ingress(e *plan.Exposure) {
	name := r.name(settings.Ingress, e)
	paths, rewrites := []networkingv1.HTTPIngressPath{{Path: prefix(e.Path), PathType: ptr.To(networkingv1.PathTypePrefix)}}, map[string]string{}
	if e.Path != "/" {
		paths, rewrites = r.rewrites(name, e)
	}
	for i := range paths {
		paths[i].Backend.Service = &networkingv1.IngressServiceBackend{
			Name: e.Backend.Name, Port: networkingv1.ServiceBackendPort{Number: e.Backend.Port},
		}
	}
	spec := networkingv1.IngressSpec{
		IngressClassName: r.Settings.IngressClass,
		Rules: []networkingv1.IngressRule{{Host: e.Host, IngressRuleValue: networkingv1.IngressRuleValue{
			HTTP: &networkingv1.HTTPIngressRuleValue{Paths: paths},
		}}},
	}
	if e.TLSSecret != "" {
		spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{e.Host}, SecretName: e.TLSSecret}}
	}
	r.add(Ingresses, e.Slot, &networkingv1.Ingress{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "Ingress"},
		ObjectMeta: r.meta(name, with(r.annotations(with(r.streaming(e), r.issuer())), rewrites)),
		Spec:       spec,
	}, e)
}

// issuer is what cert-manager wants to be told.
func (r *renderer) issuer() map[string]string {
	kind, name, _ := strings.Cut(r.Settings.TLS.Issuer, "/")
	switch kind {
	case "Issuer":
		return map[string]string{"cert-manager.io/issuer": name}
	case "ClusterIssuer":
		return map[string]string{"cert-manager.io/cluster-issuer": name}
	}
	return nil
}

// streaming returns the annotations for timeouts, sizes and buffers. Traefik and Istio need none: they neither buffer nor
// time out by themselves.
func (r *renderer) streaming(e *plan.Exposure) map[string]string {
	timeout, buffer := e.Timeout, "off"
	if timeout == 0 {
		timeout = never
	}
	if r.Settings.BufferBodies {
		buffer = "on"
	}
	seconds, size := strconv.Itoa(int(timeout/time.Second)), strconv.FormatInt(r.Settings.MaxBody, 10)
	switch e.Controller {
	case ingressclass.IngressNGINX:
		const prefix = "nginx.ingress.kubernetes.io/"
		return map[string]string{
			prefix + "proxy-read-timeout": seconds, prefix + "proxy-send-timeout": seconds, prefix + "proxy-body-size": size,
			prefix + "proxy-buffering": buffer, prefix + "proxy-request-buffering": buffer,
		}
	case ingressclass.NGINX:
		const prefix = "nginx.org/"
		return map[string]string{
			prefix + "proxy-read-timeout": seconds + "s", prefix + "proxy-send-timeout": seconds + "s", prefix + "client-max-body-size": size,
			prefix + "proxy-buffering": map[bool]string{false: "False", true: "True"}[r.Settings.BufferBodies],
		}
	case ingressclass.HAProxy:
		return map[string]string{"haproxy.org/timeout-server": seconds + "s"}
	case ingressclass.HAProxyIngress:
		const prefix = "haproxy-ingress.github.io/"
		annotations := map[string]string{prefix + "timeout-server": seconds + "s"}
		if r.Settings.MaxBody > 0 {
			annotations[prefix+"proxy-body-size"] = size
		}
		return annotations
	case ingressclass.Contour:
		if e.Timeout == 0 {
			return map[string]string{"projectcontour.io/response-timeout": "infinity"}
		}
		return map[string]string{"projectcontour.io/response-timeout": seconds + "s"}
	}
	return nil
}

// rewrites returns the paths that match a prefix in the words of a controller, and the annotations that take it away.
func (r *renderer) rewrites(name string, e *plan.Exposure) ([]networkingv1.HTTPIngressPath, map[string]string) {
	path := func(kind networkingv1.PathType, text string) networkingv1.HTTPIngressPath {
		return networkingv1.HTTPIngressPath{Path: text, PathType: &kind}
	}
	bare := prefix(e.Path)
	below := []networkingv1.HTTPIngressPath{path(networkingv1.PathTypePrefix, bare)}
	switch e.Controller {
	case ingressclass.IngressNGINX:
		return []networkingv1.HTTPIngressPath{path(networkingv1.PathTypeImplementationSpecific, regexp.QuoteMeta(bare)+"(/|$)(.*)")},
			map[string]string{"nginx.ingress.kubernetes.io/use-regex": "true", "nginx.ingress.kubernetes.io/rewrite-target": "/$2"}
	case ingressclass.HAProxy:
		return below, map[string]string{"haproxy.org/path-rewrite": regexp.QuoteMeta(bare) + `/?(.*) /\1`}
	case ingressclass.HAProxyIngress:
		return below, map[string]string{"haproxy-ingress.github.io/rewrite-target": "/"}
	case ingressclass.Traefik: // a prefix is one of text to it
		r.add(Middlewares, e.Slot, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": Middlewares.GroupVersion().String(), "kind": "Middleware",
			"metadata": map[string]any{"namespace": r.Service.Namespace, "name": name},
			"spec":     map[string]any{"stripPrefix": map[string]any{"prefixes": []any{bare}}},
		}}, nil)
		const middlewares = "traefik.ingress.kubernetes.io/router.middlewares"
		chain := r.Service.Namespace + "-" + name + "@kubernetescrd"
		if said := r.annotations(nil)[middlewares]; said != "" { // they see the whole path
			chain = said + "," + chain
		}
		return []networkingv1.HTTPIngressPath{path(networkingv1.PathTypeExact, bare), path(networkingv1.PathTypePrefix, e.Path)}, map[string]string{middlewares: chain}
	}
	return below, nil
}
