package informers

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
)

const (
	// byService indexes EndpointSlices by their Service.
	byService = "service"
	// labelServiceName is the label of an EndpointSlice with the name of its Service.
	labelServiceName = "kubernetes.io/service-name"
	// metricsPort is the name of the port of a picker's Service that serves metrics and holds.
	metricsPort = "metrics"
	// maxEndpoints is the number of addresses that are kept of an EndpointSlice. A picker has few replicas.
	maxEndpoints = 32
)

// Endpoints are the addresses of a Service that are ready, and have a port for metrics: a part of them, as EndpointSlices are.
type Endpoints struct {
	Identity
	Service   string   // empty: it has no port for metrics
	Addresses []string // with the port
	TLS       bool
}

// EndpointsKind returns the kind of EndpointSlices.
func EndpointsKind() kit.Kind {
	k := optionalKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", readEndpoints)
	k.Indexers = cache.Indexers{byService: kit.IndexBy(func(e *Endpoints) []string {
		if e.Service == "" {
			return nil
		}
		return []string{e.Namespace + "/" + e.Service}
	})}
	return k
}

// EndpointsOf returns the EndpointSlices of a Service.
func EndpointsOf(r kit.Reader, service cache.ObjectName) []*Endpoints {
	return kit.CastObjects[*Endpoints](r.ByIndex(byService, service.String()))
}

// pickerOf returns the Service that a reference in the spec of a pool names, empty for a reference to something else.
func pickerOf(f *fields, reference string) string {
	kind, group := f.textAt("spec", reference, "kind"), f.textAt("spec", reference, "group")
	if kind != "" && kind != "Service" || group != "" && group != "core" {
		return ""
	}
	return f.textAt("spec", reference, "name")
}

// readEndpoints keeps nothing of an EndpointSlice without a port for metrics.
func readEndpoints(u *unstructured.Unstructured) any {
	e := &Endpoints{Identity: identityOf(u)}
	f := newFields(u)
	port := ""
	for p := range f.itemsAt("ports") {
		if number, ok := p.object["port"].(int64); ok && p.object["name"] == metricsPort {
			port = strconv.FormatInt(number, 10)
			protocol, _ := p.object["appProtocol"].(string)
			e.TLS = strings.EqualFold(protocol, "https")
		}
	}
	if port == "" {
		return e
	}
	e.Service = f.label(labelServiceName)
	for endpoint := range f.itemsAt("endpoints") {
		if address := addressOf(endpoint); address != "" && len(e.Addresses) < maxEndpoints {
			e.Addresses = append(e.Addresses, net.JoinHostPort(address, port))
		}
	}
	return e
}

// addressOf returns the IP address of an endpoint, empty if it is not ready. All addresses of an endpoint are of the same pod.
func addressOf(endpoint *fields) string {
	addresses := endpoint.listAt("addresses")
	if ready, known := endpoint.value("conditions", "ready").(bool); known && !ready || len(addresses) == 0 {
		return ""
	}
	text, _ := addresses[0].(string)
	address, err := netip.ParseAddr(text)
	if err != nil || address.Zone() != "" {
		return ""
	}
	return address.String()
}
