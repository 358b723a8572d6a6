package svcproxy

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// newDirectory returns a directory that knows these objects.
func newDirectory(t *testing.T, objects ...runtime.Object) (*Directory, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset(objects...)
	d, err := NewDirectory(client)
	require.NoError(t, err)
	kubetest.StartInformers(t, d.factory)
	return d, client
}

// service is one in the default namespace.
func service(name, clusterIP string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: clusterIP, Ports: ports}}
}

func tcp(name string, port int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, Protocol: corev1.ProtocolTCP}
}

func externalName(name, target string) *corev1.Service {
	s := service(name, "")
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, target
	return s
}

// slice is an EndpointSlice of a service with one port for all its endpoints.
func slice(svc string, number int, port discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: svc + "-" + strconv.Itoa(number), Labels: map[string]string{discoveryv1.LabelServiceName: svc}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints, Ports: []discoveryv1.EndpointPort{port},
	}
}

func endpointPort(name string, port int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &port}
}

func readyAt(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}
}

func unreadyAt(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}}
}

func drainingAt(ip string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{ip}, Conditions: discoveryv1.EndpointConditions{
		Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}}
}

func TestBackends(t *testing.T) {
	t.Parallel()
	http := endpointPort("http", 8080)
	six := slice("web", 2, http, readyAt("fd00::1"))
	six.AddressType = discoveryv1.AddressTypeIPv6
	other := slice("other", 1, http, readyAt("10.244.9.9"))
	elsewhere := slice("web", 2, http, readyAt("10.244.9.9"))
	elsewhere.Namespace = "elsewhere"
	tests := []struct {
		name   string
		slices []*discoveryv1.EndpointSlice
		want   []string
	}{
		{name: "none without a slice"},
		{name: "the ready ones", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, readyAt("10.244.1.2"), unreadyAt("10.244.1.3"), drainingAt("10.244.1.4"))},
			want: []string{"10.244.1.2:8080"}},
		{name: "those that still serve when none is ready", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, unreadyAt("10.244.1.3"), drainingAt("10.244.1.4"))},
			want: []string{"10.244.1.4:8080"}},
		{name: "none when none serves", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, unreadyAt("10.244.1.3"))}},
		{name: "ready when nothing is said", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, discoveryv1.Endpoint{Addresses: []string{"10.244.1.2"}})},
			want: []string{"10.244.1.2:8080"}},
		{name: "of all slices", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, readyAt("10.244.1.2")), slice("web", 2, endpointPort("http", 8081), readyAt("10.244.1.3"))},
			want: []string{"10.244.1.2:8080", "10.244.1.3:8081"}},
		{name: "once when it is in two slices", slices: []*discoveryv1.EndpointSlice{slice("web", 1, http, readyAt("10.244.1.2"), readyAt("10.244.1.3")), slice("web", 2, http, readyAt("10.244.1.2"))},
			want: []string{"10.244.1.2:8080", "10.244.1.3:8080"}},
		{name: "not by another port", slices: []*discoveryv1.EndpointSlice{slice("web", 1, endpointPort("metrics", 9090), readyAt("10.244.1.2"))}},
		{name: "not by a port without number", slices: []*discoveryv1.EndpointSlice{slice("web", 1, discoveryv1.EndpointPort{Name: ptr.To("http")}, readyAt("10.244.1.2"))}},
		{name: "not by IPv6", slices: []*discoveryv1.EndpointSlice{six}},
		{name: "not of another service", slices: []*discoveryv1.EndpointSlice{other}},
		{name: "not of another namespace", slices: []*discoveryv1.EndpointSlice{elsewhere}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var objects []runtime.Object
			for _, s := range tt.slices {
				objects = append(objects, s)
			}
			d, _ := newDirectory(t, objects...)
			assert.Equal(t, tt.want, d.backends("default", "web", "http"))
		})
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	unnamed := slice("plain", 1, discoveryv1.EndpointPort{Port: ptr.To(int32(8000))}, readyAt("10.244.1.9"))
	d, _ := newDirectory(t,
		service("web", "10.96.0.20", tcp("http", 80), tcp("metrics", 9090)), slice("web", 1, endpointPort("http", 8080), readyAt("10.244.1.2")),
		service("plain", "None", tcp("", 80)), unnamed, service("empty", "10.96.0.21", tcp("http", 80)))
	tests := []struct {
		name                     string
		namespace, service, port string
		want                     []string
		wantErr                  string
	}{
		{name: "port by number", namespace: "default", service: "web", port: "80", want: []string{"10.244.1.2:8080"}},
		{name: "port by name", namespace: "default", service: "web", port: "http", want: []string{"10.244.1.2:8080"}},
		{name: "unnamed port", namespace: "default", service: "plain", port: "80", want: []string{"10.244.1.9:8000"}},
		{name: "the endpoints' port is not the service's", namespace: "default", service: "web", port: "8080", wantErr: "service web.default has no port 8080"},
		{name: "port without endpoints", namespace: "default", service: "web", port: "metrics", wantErr: "service web.default has no ready endpoint for port metrics"},
		{name: "service without endpoints", namespace: "default", service: "empty", port: "80", wantErr: "service empty.default has no ready endpoint for port 80"},
		{name: "no such port", namespace: "default", service: "web", port: "grpc", wantErr: "service web.default has no port grpc"},
		{name: "no such service", namespace: "default", service: "api", port: "80", wantErr: "no service api in namespace default"},
		{name: "no such namespace", namespace: "prod", service: "web", port: "80", wantErr: "no service web in namespace prod"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := NewProxy(d, false).Lookup(tt.namespace, tt.service, tt.port)
			if tt.wantErr != "" {
				require.EqualError(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestDirectory_FollowsChanges(t *testing.T) {
	t.Parallel()
	d, client := newDirectory(t, service("web", "10.96.0.20", tcp("http", 80)), slice("web", 1, endpointPort("http", 8080), readyAt("10.244.1.2")))
	lookup := func(port string, want ...string) {
		t.Helper()
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			got, err := NewProxy(d, false).Lookup("default", "web", port)
			require.NoError(collect, err)
			assert.Equal(collect, want, got)
		}, kubetest.Patience, tick)
	}
	ctx := t.Context()
	_, err := client.DiscoveryV1().EndpointSlices("default").Update(ctx, slice("web", 1, endpointPort("http", 8080), readyAt("10.244.1.3")), metav1.UpdateOptions{})
	require.NoError(t, err)
	lookup("80", "10.244.1.3:8080")
	_, err = client.CoreV1().Services("default").Update(ctx, service("web", "10.96.0.20", tcp("http", 81)), metav1.UpdateOptions{})
	require.NoError(t, err)
	lookup("81", "10.244.1.3:8080")
}

func TestWaitForSync_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	kubetest.FailAlways(client, "*", "services", errors.New("not now"))
	d, err := NewDirectory(client)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	d.Start(ctx)
	t.Cleanup(d.factory.Shutdown)
	cancel()
	err = d.WaitForSync(ctx)
	require.ErrorIs(t, err, context.Canceled)
	assert.ErrorContains(t, err, "sync *v1.")
}

func TestStart_FillsTheDirectory(t *testing.T) {
	t.Parallel()
	d, err := NewDirectory(fake.NewClientset(service("web", "10.96.0.20", tcp("http", 80))))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), kubetest.Patience)
	t.Cleanup(func() {
		cancel()
		d.factory.Shutdown()
	})
	d.Start(ctx)
	require.NoError(t, d.WaitForSync(ctx))
	_, err = NewProxy(d, false).Lookup("default", "web", "http")
	require.ErrorContains(t, err, "no ready endpoint")
}

// tick is how often these tests look.
const tick = 5 * time.Millisecond
