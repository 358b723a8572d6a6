// Package istiogateway predicts whether an Istio Gateway serves the routes of a VirtualService, and under which URL.
//
// A VirtualService has no status: without the prediction, the condition would report a route as programmed even if its Gateway does
// not exist, or has no server for the host. The package decodes each networking.istio.io Gateway separately into a small type, so a
// malformed object does not affect other objects.
package istiogateway

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/pkg/gatewayapi"
)

// Resource is the resource of Istio Gateways, in a version that all releases of Istio serve.
var Resource = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: "gateways"}

// Mesh is a reserved name in VirtualServices: it stands for all sidecars, not for a Gateway.
const Mesh = "mesh"

// Gateway is an Istio Gateway.
type Gateway struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		Servers []Server `json:"servers"`
	} `json:"spec"`
	Unreadable bool `json:"-"` // the object cannot be decoded
}

// Server is one server of a Gateway.
type Server struct {
	Port struct {
		Number   int32  `json:"number"`
		Name     string `json:"name"`
		Protocol string `json:"protocol"`
	} `json:"port"`
	Hosts []string `json:"hosts"`
	TLS   *TLS     `json:"tls"`
}

// TLS is the TLS configuration of a server.
type TLS struct {
	HTTPSRedirect bool   `json:"httpsRedirect"`
	Mode          string `json:"mode"`
}

// ParseName parses a Gateway in a VirtualService: namespace/name, or only the name if both are in one namespace.
func ParseName(text, namespace string) (gatewayNamespace, name string) {
	if before, after, found := strings.Cut(text, "/"); found {
		return before, after
	}
	return namespace, text
}

// PredictAttachment predicts whether a Gateway serves a host of a VirtualService in a namespace. A nil Gateway means that it does not
// exist.
func (g *Gateway) PredictAttachment(namespace, host string) gatewayapi.Attachment {
	switch {
	case g == nil:
		return gatewayapi.Attachment{
			Reason: gatewayapi.ReasonGatewayNotFound, Message: "the Istio Gateway does not exist: create it, or correct ingressGateway",
		}
	case g.Unreadable:
		return gatewayapi.Attachment{} // the prediction is not possible
	case len(g.Spec.Servers) == 0:
		return gatewayapi.Attachment{Reason: gatewayapi.ReasonListenerNotFound, Message: "the Istio Gateway has no servers"}
	}
	var best, closest gatewayapi.Attachment
	for i := range g.Spec.Servers {
		s := &g.Spec.Servers[i]
		a := g.attachServer(s, namespace, host)
		switch {
		case a.Reason != "":
			if slices.Index(reasons, a.Reason) > slices.Index(reasons, closest.Reason) {
				closest = a
			}
		case best.Scheme == "" || best.Scheme == "http" && a.Scheme == "https":
			best = a
		}
	}
	if best.Scheme != "" {
		return best
	}
	return closest
}

// reasons are ordered by how close a server came to serving the host.
var reasons = []string{"", gatewayapi.ReasonProtocolNotSupported, gatewayapi.ReasonNoMatchingHostname, gatewayapi.ReasonListenerNotAllowed}

// attachServer predicts whether one server serves a host.
func (g *Gateway) attachServer(s *Server, namespace, host string) gatewayapi.Attachment {
	scheme := s.urlScheme()
	if scheme == "" {
		return gatewayapi.Attachment{
			Reason:  gatewayapi.ReasonProtocolNotSupported,
			Message: fmt.Sprintf("server %s does not route HTTP requests: it has protocol %s", s.describeServer(), s.Port.Protocol),
		}
	}
	matched := false
	for _, pattern := range s.Hosts {
		from, dns, found := strings.Cut(pattern, "/")
		if !found {
			from, dns = "*", pattern
		}
		if !matchesHost(dns, host) {
			continue
		}
		matched = true
		if from == "*" || from == namespace || from == "." && namespace == g.Namespace {
			return gatewayapi.Attachment{Scheme: scheme, Port: s.Port.Number}
		}
	}
	if matched {
		return gatewayapi.Attachment{
			Reason:  gatewayapi.ReasonListenerNotAllowed,
			Message: fmt.Sprintf("server %s does not accept VirtualServices of namespace %s: see its hosts", s.describeServer(), namespace),
		}
	}
	return gatewayapi.Attachment{
		Reason:  gatewayapi.ReasonNoMatchingHostname,
		Message: fmt.Sprintf("no server has host %s: server %s has %s", host, s.describeServer(), strings.Join(s.Hosts, ", ")),
	}
}

// urlScheme returns the URL scheme of a server, or "" if the server does not route HTTP requests. A server that redirects to HTTPS only
// answers with redirects. A server in a TLS passthrough mode does not see paths.
func (s *Server) urlScheme() string {
	switch strings.ToUpper(s.Port.Protocol) {
	case "HTTP", "HTTP2", "GRPC", "GRPC-WEB":
		if s.TLS != nil && s.TLS.HTTPSRedirect {
			return ""
		}
		return "http"
	case "HTTPS":
		if s.TLS != nil && slices.Contains([]string{"SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL", "ISTIO_MUTUAL"}, s.TLS.Mode) {
			return "https"
		}
	}
	return ""
}

func (s *Server) describeServer() string {
	if s.Port.Name != "" {
		return s.Port.Name
	}
	return fmt.Sprintf("on port %d", s.Port.Number)
}

// matchesHost reports whether a host matches a pattern: a name, *.domain or *.
func matchesHost(pattern, host string) bool {
	pattern = strings.ToLower(pattern)
	if suffix, wildcard := strings.CutPrefix(pattern, "*"); wildcard {
		return strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	}
	return pattern == host
}
