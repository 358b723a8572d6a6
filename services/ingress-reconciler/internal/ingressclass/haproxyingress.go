package ingressclass

import (
	"strconv"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

const prefixHAProxyIngress = "haproxy-ingress.github.io/"

// HAProxyIngress is the community project HAProxy Ingress.
var HAProxyIngress = Controller{
	Name:            "haproxy-ingress",
	SpecControllers: []string{"haproxy-ingress.github.io/controller"},
	Streaming: func(s Streaming) map[string]string {
		annotations := map[string]string{prefixHAProxyIngress + "timeout-server": strconv.Itoa(int(s.timeoutOrMax()/time.Second)) + "s"}
		if s.MaxBody > 0 {
			annotations[prefixHAProxyIngress+"proxy-body-size"] = strconv.FormatInt(s.MaxBody, 10)
		}
		return annotations
	},
	StripPrefix: func(p Prefix) Stripped {
		return Stripped{
			Paths:       []networkingv1.HTTPIngressPath{ingressPath(networkingv1.PathTypePrefix, p.withoutSlash())},
			Annotations: map[string]string{prefixHAProxyIngress + "rewrite-target": "/"},
		}
	},
	GRPC: func(_ string) map[string]string {
		return map[string]string{"haproxy-ingress.github.io/backend-protocol": "grpc"}
	},
	Safe: []SafeAnnotation{
		{prefixHAProxyIngress + "maxconn-server", "a number; limits connections to the tenant's own pods"},
		{prefixHAProxyIngress + "maxqueue-server", "a number; limits the queue of the tenant's own pods"},
	},
}
