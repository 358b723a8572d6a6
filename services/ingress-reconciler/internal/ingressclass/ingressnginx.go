package ingressclass

import (
	"regexp"
	"strconv"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
)

const prefixIngressNGINX = "nginx.ingress.kubernetes.io/"

// IngressNGINX is ingress-nginx of the Kubernetes project, and programs that read its annotations, such as Traefik's NGINX
// provider. The documentation of ingress-nginx rates annotations by scope and risk (annotations-risk.md). The safe annotations
// below affect only a location or its own upstream, have a low risk, and have a number or boolean as value.
var IngressNGINX = Controller{
	Name:              "ingress-nginx",
	SpecControllers:   []string{"k8s.io/ingress-nginx"},
	RefusesDuplicates: true,
	MatchesHost:       true, // use-regex of one Ingress makes all paths of the host, Exact ones too, case-insensitive expressions
	Streaming: func(s Streaming) map[string]string {
		buffer, seconds := "off", strconv.Itoa(int(s.timeoutOrMax()/time.Second))
		if s.Buffer {
			buffer = "on"
		}
		return map[string]string{
			prefixIngressNGINX + "proxy-read-timeout": seconds, prefixIngressNGINX + "proxy-send-timeout": seconds,
			prefixIngressNGINX + "proxy-body-size": strconv.FormatInt(s.MaxBody, 10),
			prefixIngressNGINX + "proxy-buffering": buffer, prefixIngressNGINX + "proxy-request-buffering": buffer,
		}
	},
	StripPrefix: func(p Prefix) Stripped {
		return Stripped{
			Paths: []networkingv1.HTTPIngressPath{
				ingressPath(networkingv1.PathTypeImplementationSpecific, regexp.QuoteMeta(p.withoutSlash())+"(/|$)(.*)"),
			},
			Annotations: map[string]string{prefixIngressNGINX + "use-regex": "true", prefixIngressNGINX + "rewrite-target": "/$2"},
		}
	},
	// The webhook compares the texts of paths, and the longer expression answers.
	YieldRoot: func(path map[string]any, annotations map[string]string) {
		path["path"], path["pathType"] = "/(.*)", string(networkingv1.PathTypeImplementationSpecific)
		annotations[prefixIngressNGINX+"use-regex"] = "true"
	},
	GRPC: func(_ string) map[string]string {
		return map[string]string{prefixIngressNGINX + "backend-protocol": "GRPC"}
	},
	Safe: []SafeAnnotation{
		{prefixIngressNGINX + "limit-connections", "a number; limits each client of the tenant's own paths"},
		{prefixIngressNGINX + "limit-rps", "a number; limits each client of the tenant's own paths"},
		{prefixIngressNGINX + "limit-rpm", "a number; limits each client of the tenant's own paths"},
		{prefixIngressNGINX + "limit-burst-multiplier", "a number; belongs to the limits"},
		{prefixIngressNGINX + "proxy-connect-timeout", "a number of seconds; waits for the tenant's own pods"},
		{prefixIngressNGINX + "proxy-next-upstream-timeout", "a number of seconds; retries on the tenant's own pods"},
		{prefixIngressNGINX + "proxy-next-upstream-tries", "a number; retries on the tenant's own pods"},
		{prefixIngressNGINX + "service-upstream", "a boolean; sends to the tenant's own Service instead of its pods"},
	},
}
