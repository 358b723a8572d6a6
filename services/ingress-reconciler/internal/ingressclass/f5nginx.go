package ingressclass

import (
	"strconv"
	"time"
)

const prefixNGINX = "nginx.org/"

// NGINX is the ingress controller of F5 NGINX. It can rewrite paths, but serves only one Ingress for each host, so several services
// cannot share a host.
var NGINX = Controller{
	Name:            "F5 NGINX",
	SpecControllers: []string{"nginx.org/ingress-controller"},
	Streaming: func(s Streaming) map[string]string {
		buffer, seconds := "False", strconv.Itoa(int(s.timeoutOrMax()/time.Second))+"s"
		if s.Buffer {
			buffer = "True"
		}
		return map[string]string{
			prefixNGINX + "proxy-read-timeout": seconds, prefixNGINX + "proxy-send-timeout": seconds,
			prefixNGINX + "client-max-body-size": strconv.FormatInt(s.MaxBody, 10), prefixNGINX + "proxy-buffering": buffer,
		}
	},
	GRPC: func(service string) map[string]string {
		return map[string]string{prefixNGINX + "grpc-services": service}
	},
	Safe: []SafeAnnotation{
		{prefixNGINX + "fail-timeout", "a time; passive health of the tenant's own pods"},
		{prefixNGINX + "max-conns", "a number; limits connections to the tenant's own pods"},
		{prefixNGINX + "max-fails", "a number; passive health of the tenant's own pods"},
	},
}
