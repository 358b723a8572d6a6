package informers_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
)

const endpointSlice = `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: ns, name: epp-x, resourceVersion: "7", labels: {kubernetes.io/service-name: epp}}
ports: [{name: grpc-ext-proc, port: 9002}, {name: metrics, port: 9090, appProtocol: %s}]
endpoints:
- {addresses: [10.0.0.1, 10.0.0.9], conditions: {ready: true}}
- {addresses: [10.0.0.2], conditions: {ready: false, serving: true, terminating: true}}
- {addresses: [10.0.0.3]}
- {addresses: ["fd00::4"], conditions: {ready: true}}
- {addresses: ["fe80::4%%eth0"], conditions: {ready: true}}
- {addresses: [picker.example], conditions: {ready: true}}
- {addresses: []}
- text
`

func TestEndpoints(t *testing.T) {
	t.Parallel()
	id := informers.Identity{Namespace: "ns", Name: "epp-x", Version: "7"}
	addresses := []string{"10.0.0.1:9090", "10.0.0.3:9090", "[fd00::4]:9090"}
	for protocol, tls := range map[string]bool{"https": true, "http": false, "null": false} {
		got := read[informers.Endpoints](t, informers.EndpointsKind(), fmt.Sprintf(endpointSlice, protocol))
		assert.Equal(t, &informers.Endpoints{Identity: id, Service: "epp", Addresses: addresses, TLS: tls}, got, protocol)
	}
	other := strings.Replace(endpointSlice, "name: metrics", "name: http", 1)
	assert.Equal(t, &informers.Endpoints{Identity: id}, read[informers.Endpoints](t, informers.EndpointsKind(), fmt.Sprintf(other, "http")), "no port for metrics")

	many := fmt.Sprintf(endpointSlice, "http")
	for n := range 100 {
		many += fmt.Sprintf("- {addresses: [10.0.1.%d]}\n", n)
	}
	u := object(t, many)
	assert.Len(t, read[informers.Endpoints](t, informers.EndpointsKind(), many).Addresses, 32)
	reader, err := (&kit.Snapshot{Objects: []*unstructured.Unstructured{u}}).Reader(informers.EndpointsKind())
	require.NoError(t, err)
	assert.Len(t, informers.EndpointsOf(reader, cache.ObjectName{Namespace: "ns", Name: "epp"}), 1)
	assert.Empty(t, informers.EndpointsOf(reader, cache.ObjectName{Namespace: "other", Name: "epp"}))
}

func TestPickerOfAPool(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"{endpointPickerRef: {name: epp, port: {number: 9002}}}":                        "epp",
		"{endpointPickerRef: {name: epp, kind: Service, group: \"\"}}":                  "epp",
		"{endpointPickerRef: {name: epp, kind: Deployment, group: apps}}":               "",
		"{endpointPickerRef: epp}":                                                      "",
		"{extensionRef: {name: epp}}":                                                   "",
		"{endpointPickerRef: {name: " + strings.Repeat("x", informers.MaxText) + "yy}}": strings.Repeat("x", informers.MaxText),
	} {
		assert.Equal(t, want, read[informers.Pool](t, kindOf("inferencepools.inference.networking.k8s.io"), "kind: InferencePool\nspec: "+spec).Picker, spec)
	}
	assert.Equal(t, "epp", read[informers.Pool](t, kindOf("inferencepools.inference.networking.x-k8s.io"), "kind: InferencePool\nspec: {extensionRef: {name: epp, portNumber: 9002}}").Picker)
}
