package ingressclass

import (
	"strconv"
	"time"
)

const prefixContour = "projectcontour.io/"

// Contour is Contour. It rewrites paths only for HTTPProxies, not for Ingresses.
var Contour = Controller{
	Name:            "Contour",
	SpecControllers: []string{prefixContour},
	Streaming: func(s Streaming) map[string]string {
		timeout := "infinity"
		if s.Timeout > 0 {
			timeout = strconv.Itoa(int(s.Timeout/time.Second)) + "s"
		}
		return map[string]string{prefixContour + "response-timeout": timeout}
	},
	Safe: []SafeAnnotation{
		{prefixContour + "num-retries", "a number; retries on the tenant's own pods"},
		{prefixContour + "per-try-timeout", "a time; belongs to the retries"},
		{prefixContour + "retry-on", "a list of Envoy's conditions; belongs to the retries"},
	},
}
