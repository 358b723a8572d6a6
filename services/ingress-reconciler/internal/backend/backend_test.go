package backend

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/services/ingress-reconciler/internal/isvc"
)

var chat = &isvc.Service{Namespace: "models", Name: "chat", UID: "chat-uid"}

// service returns the Service of a component of chat.
func service(name string, role isvc.Role, change ...func(*corev1.Service)) *corev1.Service {
	yes := true
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "models", Name: name, Labels: map[string]string{LabelService: "chat", LabelComponent: string(role)},
			OwnerReferences: []metav1.OwnerReference{{Kind: "InferenceService", Name: "chat", UID: "chat-uid", Controller: &yes}},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Name: "http1", Port: 8080, Protocol: corev1.ProtocolTCP}},
		},
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
		{
			name: "of the other roles",
			give: []*corev1.Service{service("chat-router", isvc.Router), service("chat-decoder", isvc.Decoder)}, fails: ErrNotFound,
		},
		{name: "of a revision, and headless", give: []*corev1.Service{
			service("chat-engine-rev-6d5f", isvc.Engine), service("chat-engine-headless", isvc.Engine),
			service("a", isvc.Engine, func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }),
			service("chat-engine", isvc.Engine),
		}, want: "chat-engine"},
		{name: "of a revision whose name is truncated", give: []*corev1.Service{
			service("a1b2c3d4-xx-engine", isvc.Engine, func(s *corev1.Service) { s.Labels["ome.io/revision-hash"] = "6d5f" }),
		}, fails: ErrNotFound},
		{name: "only of a revision", give: []*corev1.Service{service("chat-engine-rev-6d5f", isvc.Engine)}, fails: ErrNotFound},
		{name: "the only candidate", give: []*corev1.Service{service("b0ac-engine", isvc.Engine)}, want: "b0ac-engine"},
		{
			name: "two that could be", give: []*corev1.Service{service("x-engine", isvc.Engine), service("y-engine", isvc.Engine)},
			fails: ErrNotFound,
		},
		{
			name: "of another InferenceService, chat-engine",
			give: []*corev1.Service{service("chat-engine", isvc.Engine, ownedBy("other"))}, fails: ErrForeign,
		},
		{
			name:  "without an owner",
			give:  []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.OwnerReferences = nil })},
			fails: ErrForeign,
		},
		{
			name: "of an owner that does not control it",
			give: []*corev1.Service{
				service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.OwnerReferences[0].Controller = nil }),
			},
			fails: ErrForeign,
		},
		{
			name:  "of another namespace",
			give:  []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Namespace = "else" })},
			fails: ErrNotFound,
		},
		{
			name:  "on its way out",
			give:  []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{} })},
			fails: ErrNotFound,
		},
		{
			name: "without ports",
			give: []*corev1.Service{service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Spec.Ports = nil })}, fails: ErrNoPort,
		},
		{
			name: "UDP alone",
			give: []*corev1.Service{
				service("chat-engine", isvc.Engine, func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP }),
			},
			fails: ErrNoPort,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := FindService(tt.give, chat, isvc.Engine)
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
	h2c, tcp, http := "kubernetes.io/h2c", "tcp", "HTTP"
	tests := []struct {
		name string
		give []corev1.ServicePort
		want Service
	}{
		{name: "the only one", give: []corev1.ServicePort{{Port: 30000}}, want: Service{Port: 30000}},
		{name: "the first", give: []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}, want: Service{Port: 1, PortName: "a"}},
		{
			name: "by name", give: []corev1.ServicePort{{Name: "grpc", Port: 1}, {Name: "http", Port: 2}},
			want: Service{Port: 2, PortName: "http"},
		},
		{
			name: "http before http1",
			give: []corev1.ServicePort{{Name: "http1", Port: 1}, {Name: "h2c", Port: 2}, {Name: "http", Port: 3}},
			want: Service{Port: 3, PortName: "http"},
		},
		{
			name: "http1 before h2c", give: []corev1.ServicePort{{Name: "h2c", Port: 2}, {Name: "http1", Port: 1}},
			want: Service{Port: 1, PortName: "http1"},
		},
		{
			name: "by the beginning of a name", give: []corev1.ServicePort{{Name: "grpc", Port: 1}, {Name: "http-api", Port: 2}},
			want: Service{Port: 2, PortName: "http-api"},
		},
		{
			name: "a name before a protocol",
			give: []corev1.ServicePort{{Name: "a", Port: 1, AppProtocol: &h2c}, {Name: "http1", Port: 2}},
			want: Service{Port: 2, PortName: "http1"},
		},
		{
			name: "by protocol",
			give: []corev1.ServicePort{{Name: "a", Port: 1, AppProtocol: &tcp}, {Name: "b", Port: 2, AppProtocol: &h2c}},
			want: Service{Port: 2, PortName: "b", AppProtocol: h2c},
		},
		{
			name: "https is not it", give: []corev1.ServicePort{{Name: "https", Port: 1}, {Name: "http", Port: 2}},
			want: Service{Port: 2, PortName: "http"},
		},
		{
			name: "after UDP", give: []corev1.ServicePort{{Name: "http", Port: 1, Protocol: corev1.ProtocolUDP}, {Name: "b", Port: 2}},
			want: Service{Port: 2, PortName: "b"},
		},
		{
			name: "http-metrics is not the API",
			give: []corev1.ServicePort{{Name: "api", Port: 30000}, {Name: "http-metrics", Port: 9000}},
			want: Service{Port: 30000, PortName: "api"},
		},
		{
			name: "a port without a name and http-metrics", give: []corev1.ServicePort{{Port: 30000}, {Name: "http-metrics", Port: 9000}},
			want: Service{Port: 30000},
		},
		{
			name: "metrics first",
			give: []corev1.ServicePort{{Name: "metrics", Port: 9000, AppProtocol: &http}, {Name: "sglang", Port: 30000}},
			want: Service{Port: 30000, PortName: "sglang"},
		},
		{
			name: "Prometheus first",
			give: []corev1.ServicePort{{Name: "http-prometheus", Port: 9000}, {Name: "Prometheus", Port: 9001}, {Name: "x", Port: 2}},
			want: Service{Port: 2, PortName: "x"},
		},
		{
			name: "health and administration",
			give: []corev1.ServicePort{{Name: "http-health", Port: 1}, {Name: "http-admin", Port: 2}, {Name: "main", Port: 3}},
			want: Service{Port: 3, PortName: "main"},
		},
		{
			name: "a name that only contains a word",
			give: []corev1.ServicePort{{Name: "http-administrator", Port: 1}, {Name: "main", Port: 3}},
			want: Service{Port: 1, PortName: "http-administrator"},
		},
		{
			name: "metrics alone",
			give: []corev1.ServicePort{{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "metrics", Port: 9000}},
			want: Service{Port: 9000, PortName: "metrics"},
		},
		{
			name: "an HTTP port after gRPC",
			give: []corev1.ServicePort{{Name: "grpc", Port: 9000, AppProtocol: &h2c}, {Name: "rest", Port: 8080}},
			want: Service{Port: 8080, PortName: "rest"},
		},
		{
			name: "only gRPC", give: []corev1.ServicePort{{Name: "metrics", Port: 9000}, {Name: "grpc1", Port: 8080}},
			want: Service{Port: 8080, PortName: "grpc1", GRPC: true},
		},
		{
			name: "gRPC by protocol", give: []corev1.ServicePort{{Name: "api", Port: 1, AppProtocol: new("grpc")}},
			want: Service{Port: 1, PortName: "api", AppProtocol: "grpc", GRPC: true},
		},
		{
			name: "a name like gRPC for an HTTP port",
			give: []corev1.ServicePort{{Name: "grpc-gateway", Port: 1, AppProtocol: new("http")}},
			want: Service{Port: 1, PortName: "grpc-gateway", AppProtocol: "http"},
		},
		{
			name: "a word of the name", give: []corev1.ServicePort{{Name: "sglang-grpc", Port: 1}, {Name: "rest", Port: 2}},
			want: Service{Port: 2, PortName: "rest"},
		},
		{
			name: "HTTP/1.1 in front of gRPC", give: []corev1.ServicePort{{Name: "grpc-gateway", Port: 1}},
			want: Service{Port: 1, PortName: "grpc-gateway"},
		},
		{
			name: "HTTP/2 is not gRPC", give: []corev1.ServicePort{{Name: "h2c", Port: 9000}, {Name: "main", Port: 8080}},
			want: Service{Port: 9000, PortName: "h2c"},
		},
		{
			name: "Ray",
			give: []corev1.ServicePort{
				{Name: "dashboard", Port: 8265}, {Name: "ome-container", Port: 8080}, {Name: "ray-http", Port: 8000},
			},
			want: Service{Port: 8080, PortName: "ome-container"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := apiPort(&corev1.Service{Spec: corev1.ServiceSpec{Ports: tt.give}})
			require.NoError(t, err)
			assert.Equal(t, Port{Number: tt.want.Port}, got.TargetPort)
			got.TargetPort = Port{}
			assert.Equal(t, tt.want, got)
		})
	}
}

// For random Services, the port exists, is not a metrics port if another port exists, is the first port unless a name or protocol
// indicates another port, and does not change when metrics ports are added anywhere.
func TestPortOfAnyService(t *testing.T) {
	t.Parallel()
	names := []string{"", "a", "grpc", "http", "http1", "h2c", "http-api", "http-metrics", "metrics", "prometheus", "http-admin"}
	protocols := []*string{nil, nil, new("http"), new("tcp")}
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		var ports []corev1.ServicePort
		for i := range 1 + random.IntN(5) {
			ports = append(ports,
				corev1.ServicePort{
					Name: names[random.IntN(len(names))], Port: int32(i + 1), AppProtocol: protocols[random.IntN(len(protocols))],
				})
		}
		choose := func(ports []corev1.ServicePort) Service {
			got, err := apiPort(&corev1.Service{Spec: corev1.ServiceSpec{Ports: ports}})
			require.NoError(t, err)
			return got
		}
		got := choose(ports)
		api := slices.DeleteFunc(slices.Clone(ports), func(p corev1.ServicePort) bool { return isAuxiliary(p.Name) })
		if len(api) == 0 {
			assert.Contains(t, ports, corev1.ServicePort{Name: got.PortName, Port: got.Port, AppProtocol: pointer(got.AppProtocol)})
			continue
		}
		assert.False(t, isAuxiliary(got.PortName), "%v", ports)
		if !slices.ContainsFunc(api, func(p corev1.ServicePort) bool {
			return p.AppProtocol != nil || strings.HasPrefix(p.Name, "http") || p.Name == "h2c" || p.Name == "grpc"
		}) {
			assert.Equal(t, api[0].Port, got.Port, "%v", ports)
		}
		if i := slices.IndexFunc(ports, func(p corev1.ServicePort) bool { return p.Name == "http" }); i >= 0 {
			assert.Equal(t, ports[i].Port, got.Port, "%v", ports)
		}
		more := slices.Insert(slices.Clone(ports), random.IntN(len(ports)+1),
			corev1.ServicePort{Name: "http-metrics", Port: 9000, AppProtocol: new("http")})
		assert.Equal(t, got, choose(more), "%v", ports)
	}
}

func pointer(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func TestTargetPort(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give intstr.IntOrString
		want Port
	}{
		{name: "not set", want: Port{Number: 80}},
		{name: "a number", give: intstr.FromInt32(8080), want: Port{Number: 8080}},
		{name: "a name", give: intstr.FromString("http1"), want: Port{Name: "http1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := apiPort(&corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, TargetPort: tt.give}}}})
			require.NoError(t, err)
			assert.Equal(t, tt.want, got.TargetPort)
		})
	}
}

// The vectors were computed with OME's algorithm (constants.TruncateNameWithMaxLength with 63), not with this package.
func TestTruncate(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, give, want string }{
		{name: "short", give: "chat", want: "chat"},
		{name: "63 characters", give: strings.Repeat("n", 63), want: strings.Repeat("n", 63)},
		{name: "64 characters", give: strings.Repeat("n", 64), want: "ce068a19-" + strings.Repeat("n", 54)},
		{
			name: "64 characters, and a hash that begins with a digit", give: strings.Repeat("c", 64),
			want: "a2b6419d-" + strings.Repeat("c", 54),
		},
		{
			name: "a suffix that begins with a dash", give: "a" + strings.Repeat("b", 9) + "-" + strings.Repeat("d", 53),
			want: "a2f94932--" + strings.Repeat("d", 53),
		},
		{
			name: "253 characters", give: strings.Repeat("ab-cd", 50) + "xyz",
			want: "b64e5369-" + (strings.Repeat("ab-cd", 50) + "xyz")[253-54:],
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := TruncateName(tt.give)
			assert.Equal(t, tt.want, got)
			assert.LessOrEqual(t, len(got), 63)
			assert.Equal(t, got, TruncateName(got), "a truncated name does not change again")
		})
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "chat-engine", ServiceName("chat", isvc.Engine))
	assert.Equal(t, strings.Repeat("n", 56)+"-engine", ServiceName(strings.Repeat("n", 56), isvc.Engine), "63 characters")
	cut := ServiceName(strings.Repeat("n", 57), isvc.Engine)
	assert.Regexp(t, "^[a-f][0-9a-f]{7}-n{47}-engine$", cut)
	assert.Len(t, cut, 63)
	assert.NotEqual(t, cut, ServiceName(strings.Repeat("n", 58), isvc.Engine), "names with the same ending")
	for n := 40; n < 200; n++ {
		assert.Empty(t, validation.IsDNS1035Label(ServiceName(strings.Repeat("ab", n/2), isvc.Decoder)))
	}
}
