package backend

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/depcheck"
	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

func TestItIsPure(t *testing.T) {
	t.Parallel()
	depcheck.AssertNoDependency(t, ".", "k8s.io/client-go/...", "go.uber.org/zap/...", "go.uber.org/dig/...", "github.com/prometheus/...")
}

var chat = &isvc.Service{Namespace: "models", Name: "chat", UID: "chat-uid"}

// service makes the Service of a component of chat.
func service(name string, role isvc.Role, change ...func(*corev1.Service)) *corev1.Service {
	yes := true
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: name, Labels: map[string]string{LabelService: "chat", LabelComponent: string(role)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "InferenceService", Name: "chat", UID: "chat-uid", Controller: &yes}},
		},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http1", Port: 8080, Protocol: corev1.ProtocolTCP}}},
	}
	for _, f := range change {
		f(s)
	}
	return s
}

func ownedBy(uid types.UID) func(*corev1.Service) {
	return func(s *corev1.Service) { s.OwnerReferences[0].UID = uid }
}

func TestFind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		give  []*corev1.Service
		want  string
		fails error
	}{
		{name: "nothing", fails: ErrNotFound},
		{name: "OME's", give: []*corev1.Service{service("chat-engine", isvc.Engine)}, want: "chat-engine"},
		{name: "of the other roles", give: []*corev1.Service{service("chat-router", isvc.Router), service("chat-decoder", isvc.Decoder)}, fails: ErrNotFound},
		{name: "of a revision, and headless", give: []*corev1.Service{
			service("chat-engine-rev-6d5f", isvc.Engine), service("chat-engine-headless", isvc.Engine),
			service("a", isvc.Engine, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
			service("chat-engine", isvc.Engine),
		}, want: "chat-engine"},
		{name: "only of a revision", give: []*corev1.Service{service("chat-engine-rev-6d5f", isvc.Engine)}, fails: ErrNotFound},
		{name: "the only one that could be", give: []*corev1.Service{service("b0ac-engine", isvc.Engine)}, want: "b0ac-engine"},
		{name: "two that could be", give: []*corev1.Service{service("x-engine", isvc.Engine), service("y-engine", isvc.Engine)}, fails: ErrNotFound},
		{name: "of another InferenceService, chat-engine", give: []*corev1.Service{service("chat-engine", isvc.Engine, ownedBy("other"))}, fails: ErrForeign},
		{name: "of nobody", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.OwnerReferences = nil })}, fails: ErrForeign},
		{name: "of an owner that does not control it", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.OwnerReferences[0].Controller = nil })}, fails: ErrForeign},
		{name: "of another namespace", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Namespace = "else" })}, fails: ErrNotFound},
		{name: "on its way out", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} })}, fails: ErrNotFound},
		{name: "without ports", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Spec.Ports = nil })}, fails: ErrNoPort},
		{name: "UDP alone", give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })}, fails: ErrNoPort},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := Find(tt.give, chat, isvc.Engine)
			if tt.fails != nil {
				require.ErrorIs(t, err, tt.fails)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, Service{Name: tt.want, Port: 8080, PortName: "http1", TargetPort: Port{Number: 8080}}, got)
		})
	}
}

func TestPort(t *testing.T) {
	t.Parallel()
	h2c, tcp := "kubernetes.io/h2c", "tcp"
	tests := []struct {
		name string
		give []corev1.ServicePort
		want Service
	}{
		{name: "the only one", give: []corev1.ServicePort{{Port: 30000}}, want: Service{Port: 30000}},
		{name: "the first", give: []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}, want: Service{Port: 1, PortName: "a"}},
		{name: "by name", give: []corev1.ServicePort{{Name: "metrics", Port: 1}, {Name: "http", Port: 2}}, want: Service{Port: 2, PortName: "http"}},
		{name: "by the beginning of a name", give: []corev1.ServicePort{{Name: "grpc", Port: 1}, {Name: "http-api", Port: 2}}, want: Service{Port: 2, PortName: "http-api"}},
		{name: "a name before a protocol", give: []corev1.ServicePort{{Name: "a", Port: 1, AppProtocol: &h2c}, {Name: "http1", Port: 2}}, want: Service{Port: 2, PortName: "http1"}},
		{name: "by protocol", give: []corev1.ServicePort{{Name: "a", Port: 1, AppProtocol: &tcp}, {Name: "b", Port: 2, AppProtocol: &h2c}}, want: Service{Port: 2, PortName: "b", AppProtocol: h2c}},
		{name: "https is not it", give: []corev1.ServicePort{{Name: "https", Port: 1}, {Name: "http", Port: 2}}, want: Service{Port: 2, PortName: "http"}},
		{name: "after UDP", give: []corev1.ServicePort{{Name: "http", Port: 1, Protocol: corev1.ProtocolUDP}, {Name: "b", Port: 2}}, want: Service{Port: 2, PortName: "b"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := port(&corev1.Service{Spec: corev1.ServiceSpec{Ports: tt.give}})
			require.NoError(t, err)
			assert.Equal(t, Port{Number: tt.want.Port}, got.TargetPort)
			got.TargetPort = Port{}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestTargetPort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give intstr.IntOrString
		want Port
	}{
		{name: "not said", want: Port{Number: 80}},
		{name: "a number", give: intstr.FromInt32(8080), want: Port{Number: 8080}},
		{name: "a name", give: intstr.FromString("http1"), want: Port{Name: "http1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := port(&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: tt.give}}}})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.TargetPort)
		})
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "chat-engine", Name("chat", isvc.Engine))
	assert.Equal(t, strings.Repeat("n", 56)+"-engine", Name(strings.Repeat("n", 56), isvc.Engine), "63 characters")
	cut := Name(strings.Repeat("n", 57), isvc.Engine)
	assert.Regexp(t, "^[a-f][0-9a-f]{7}-n{47}-engine$", cut)
	assert.Len(t, cut, 63)
	assert.NotEqual(t, cut, Name(strings.Repeat("n", 58), isvc.Engine), "names that end alike")
	for n := 40; n < 200; n++ {
		assert.Empty(t, validation.IsDNS1035Label(Name(strings.Repeat("ab", n/2), isvc.Decoder)))
	}
}
