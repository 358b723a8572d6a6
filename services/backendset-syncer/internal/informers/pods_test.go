package informers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/backendset-syncer/internal/bindings"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/readinessgate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// foreignGate is a readiness gate of another controller.
const foreignGate = "example.com/updating"

// apiServer answers watches with some pods, and has no other objects. It implements http.RoundTripper.
type apiServer struct {
	pods int
	pod  string // JSON with the placeholders of testdata/pod.yaml
}

func newAPIServer(tb testing.TB, pods int, gateType string) *apiServer {
	tb.Helper()
	text, err := os.ReadFile("testdata/pod.yaml")
	require.NoError(tb, err)
	pod, err := yaml.YAMLToJSON(text)
	require.NoError(tb, err)
	return &apiServer{pods: pods, pod: strings.ReplaceAll(string(pod), "GATE", gateType)}
}

// RoundTrip answers a watch that begins with all objects, as those of informers do.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("sendInitialEvents") != "true" {
		return nil, fmt.Errorf("unexpected request: %s %s", r.Method, r.URL)
	}
	body, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		if strings.HasSuffix(r.URL.Path, "/pods") {
			s.writePods(w)
		}
		fmt.Fprintf(w,
			`{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}}`+
				"\n",
			s.pods+1, metav1.InitialEventsAnnotationKey)
		_ = w.Flush()
		<-r.Context().Done()
		_ = to.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

func (s *apiServer) writePods(w io.Writer) {
	for n := range s.pods {
		pod := strings.NewReplacer("NAME", fmt.Sprintf("chat-7d9c5b6f88-%05d", n), "UID", fmt.Sprintf("5a0c1c3e-6f0e-4f0b-9c3b-%012d", n),
			"VERSION", strconv.Itoa(n+1), "ADDRESS", fmt.Sprintf("10.1.%d.%d", n/250, n%250)).Replace(s.pod)
		if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", pod); err != nil {
			return // the client has left
		}
	}
}

// everything serves all kinds.
type everything struct{}

func (everything) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "pods"}, {Name: "services"}, {Name: "endpointslices"}, {Name: "backendsetbindings"},
	}}, nil
}

// start returns the informers of the program, with its handlers, when they have all objects of a server.
func start(tb testing.TB, s *apiServer) (i *informers.Informers, stop func()) {
	tb.Helper()
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://api.test", QPS: -1}, &http.Client{Transport: s})
	require.NoError(tb, err)
	i = informers.New(kit.Params{
		Log: zap.NewNop(), Client: client, Discovery: everything{}, Interval: time.Hour,
	}, informers.Options{Gates: true})
	ignore := func(cache.ObjectName) {}
	bindings.AddHandlers(i, bindings.New(bindings.Params{}), ignore)
	readinessgate.AddHandlers(i, ignore)
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	running.Go(func() { i.Run(ctx) })
	require.Eventually(tb, func() bool { return len(i.Unsynced()) == 0 }, kubetest.Patience, 10*time.Millisecond)
	return i, func() {
		cancel()
		running.Wait()
	}
}

func TestPodsAreTrimmed(t *testing.T) {
	t.Parallel()
	when := func(text string) metav1.Time {
		at, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return metav1.NewTime(at.Local())
	}
	identity := metav1.ObjectMeta{
		Namespace: "models", Name: "chat-7d9c5b6f88-00001", UID: "5a0c1c3e-6f0e-4f0b-9c3b-000000000001", ResourceVersion: "2",
	}
	gated := identity
	gated.CreationTimestamp = when("2026-11-01T12:00:00Z")
	tests := map[string]*corev1.Pod{
		foreignGate: {ObjectMeta: identity},
		v1alpha1.ReadinessGate: {
			ObjectMeta: gated, Spec: corev1.PodSpec{ReadinessGates: []corev1.PodReadinessGate{{ConditionType: v1alpha1.ReadinessGate}}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: when("2026-11-01T12:02:06Z")},
				{
					Type: v1alpha1.ReadinessGate, Status: corev1.ConditionTrue, LastTransitionTime: when("2026-11-01T12:02:13Z"),
					Reason: "InService", Message: "all load balancers send requests to the pod",
				},
			}},
		},
	}
	for gateType, want := range tests {
		i, stop := start(t, newAPIServer(t, 3, gateType))
		t.Cleanup(stop)
		assert.Len(t, i.Pods.List(), 3)
		assert.Equal(t, want, informers.FindObject[corev1.Pod](i.Pods, cache.ObjectName{Namespace: "models", Name: want.Name}), gateType)
	}
}

// BenchmarkPods reads the pods of a large cluster, and reports the memory that each of them takes after that.
func BenchmarkPods(b *testing.B) {
	const pods = 50_000
	for _, gateType := range []string{foreignGate, v1alpha1.ReadinessGate} {
		b.Run(fmt.Sprintf("gate=%t", gateType == v1alpha1.ReadinessGate), func(b *testing.B) {
			server := newAPIServer(b, pods, gateType)
			for b.Loop() {
				before := live()
				i, stop := start(b, server)
				used := live() - before
				require.Len(b, i.Pods.List(), pods)
				stop()
				b.ReportMetric(float64(used)/pods, "B/pod")
			}
			b.ReportMetric(float64(len(server.pod)), "B/object")
		})
	}
}

// live returns the size of the live heap.
func live() uint64 {
	runtime.GC()
	runtime.GC() // of what finalizers and pools held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
