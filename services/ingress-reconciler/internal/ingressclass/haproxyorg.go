package ingressclass

import (
	"regexp"
	"strconv"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

// HAProxy is the ingress controller of HAProxy Technologies.
var HAProxy = Controller{
	Name:            "haproxy.org",
	SpecControllers: []string{"haproxy.org/ingress-controller", "haproxy.org/ingress-controller/"},
	Streaming: func(s Streaming) map[string]string {
		return map[string]string{"haproxy.org/timeout-server": strconv.Itoa(int(s.timeoutOrMax()/time.Second)) + "s"}
	},
	StripPrefix: func(p Prefix) Stripped {
		return Stripped{
			Paths:       []networkingv1.HTTPIngressPath{ingressPath(networkingv1.PathTypePrefix, p.withoutSlash())},
			Annotations: map[string]string{"haproxy.org/path-rewrite": regexp.QuoteMeta(p.withoutSlash()) + `/?(.*) /\1`},
		}
	},
	GRPC: func(_ string) map[string]string { return map[string]string{"haproxy.org/server-proto": "h2"} },
	Safe: []SafeAnnotation{
		{"haproxy.org/pod-maxconn", "a number; limits connections to the tenant's own pods"},
	},
}
