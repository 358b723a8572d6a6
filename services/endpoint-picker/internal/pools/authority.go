package pools

import (
	"net/netip"
	"strconv"
	"strings"
)

// An address is how gateways name a picker: a port of a Service, as in the endpointPickerRef of an InferencePool. Unknown
// parts are zero.
type address struct {
	namespace, service string
	port               int
}

// parseAuthority reads the :authority of a stream. Gateways have different forms:
//
//	Envoy AI Gateway, kgateway    epp.ns.svc:9002
//	Istio                         outbound|9002||epp.ns.svc.cluster.local    the name of its Envoy cluster
//	NGINX Gateway Fabric          epp.ns:9002                                its X-EPP-Host
//	kubectl port-forward, tests   127.0.0.1:9002
//
// An authority of another form has no known part, except its port.
func parseAuthority(authority string) address {
	host, port := authority, ""
	if direction, rest, ok := strings.Cut(authority, "|"); ok && direction == "outbound" {
		port, host, _ = strings.Cut(rest, "|")
		_, host, _ = strings.Cut(host, "|") // the subset of a DestinationRule precedes the host
	} else if at := strings.LastIndexByte(authority, ':'); at >= 0 {
		host, port = authority[:at], authority[at+1:]
	}
	a := address{port: parsePort(port)}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return a
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	switch {
	case len(labels) == 1:
		a.service = labels[0]
	case len(labels) == 2, labels[2] == "svc":
		a.service, a.namespace = labels[0], labels[1]
	}
	return a
}

// parsePort returns 0 for text that is not a port.
func parsePort(text string) int {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(port)
}
