package backendsetsyncer_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"fairlead.dev/deploy/charts/internal/helm"
	"fairlead.dev/deploy/charts/internal/objects"
)

const responder = "release-backendset-syncer-responder"

// gateways are values that serve Gateways.
func gateways(more helm.Values) helm.Values {
	values := helm.Values{"enabled": true}
	for name, value := range more {
		values[name] = value
	}
	return helm.Values{"gateways": values, "networkPolicy": helm.Values{"enabled": true}}
}

// TestGatewayFlags checks the flags of Gateways, which are absent without them.
func TestGatewayFlags(t *testing.T) {
	t.Parallel()
	flags := func(values helm.Values) (found []string) {
		container := objects.Container(t, objects.Render(t, chart, values))
		for _, prefix := range []string{"--gateway", "--oke-gateway-api-alias", "--responder-service", "--not-found-bind-address", "--no-backends-bind-address"} {
			found = append(found, flagsOf(container, prefix)...)
		}
		return found
	}
	assert.Equal(t, []string{"--gateways=false"}, flags(nil))
	assert.Equal(t, []string{
		"--gateways=true", "--gateway-namespace=system", "--oke-gateway-api-alias=false", "--responder-service=system/" + responder,
		"--not-found-bind-address=:8404", "--no-backends-bind-address=:8500",
	}, flags(gateways(nil)))
	assert.Equal(t, []string{"--gateways=true", "--gateway-namespace=system", "--oke-gateway-api-alias=true"},
		flags(gateways(helm.Values{"okeGatewayAPIAlias": true, "responder": helm.Values{"enabled": false}})))
}

// TestResponder compares the ports of the Service with those of the container, and the NetworkPolicy with both.
func TestResponder(t *testing.T) {
	t.Parallel()
	set := objects.Render(t, chart, gateways(nil))
	var service *corev1.Service
	for _, s := range objects.All[corev1.Service](t, set) {
		if s.Name == responder {
			service = s
		}
	}
	require.NotNil(t, service)
	assert.Equal(t, corev1.ClusterIPNone, service.Spec.ClusterIP)
	served := map[string]int32{}
	for _, p := range objects.Container(t, set).Ports {
		served[p.Name] = p.ContainerPort
	}
	ports := map[int32]int32{}
	for _, p := range service.Spec.Ports {
		assert.Equal(t, p.Name, p.TargetPort.StrVal)
		ports[p.Port] = served[p.TargetPort.StrVal]
	}
	assert.Equal(t, map[int32]int32{404: 8404, 500: 8500}, ports)
	assert.Contains(t, opened(t, set), "not-found")
	assert.Contains(t, opened(t, set), "no-backends")

	without := objects.Render(t, chart, gateways(helm.Values{"responder": helm.Values{"enabled": false}}))
	for _, s := range objects.All[corev1.Service](t, without) {
		assert.NotEqual(t, responder, s.Name)
	}
	assert.NotContains(t, opened(t, without), "not-found")
}

// opened returns the ports that the NetworkPolicy opens for connections to the pod.
func opened(t *testing.T, set objects.Set) []string {
	t.Helper()
	var ports []string
	for _, rule := range objects.The[networkingv1.NetworkPolicy](t, set).Spec.Ingress {
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.String())
		}
	}
	return ports
}

func TestAliasNeedsGateways(t *testing.T) {
	t.Parallel()
	_, err := helm.Template(chart, helm.Values{"gateways": helm.Values{"okeGatewayAPIAlias": true}})
	require.ErrorContains(t, err, "gateways.okeGatewayAPIAlias: it has an effect only with gateways.enabled")
}
