//go:build system

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
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
)

// apiServer answers the watches of one resource with copies of an object, and has no others. It implements http.RoundTripper.
type apiServer struct {
	resource string
	objects  int
	object   string // JSON with placeholders
}

func newAPIServer(tb testing.TB, resource, file string, objects int) *apiServer {
	tb.Helper()
	text, err := os.ReadFile(file)
	require.NoError(tb, err)
	object, err := yaml.YAMLToJSON(text)
	require.NoError(tb, err)
	return &apiServer{resource: resource, objects: objects, object: string(object)}
}

// RoundTrip answers a watch that begins with all objects, as those of informers do.
func (s *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("sendInitialEvents") != "true" {
		return nil, fmt.Errorf("unexpected request: %s %s", r.Method, r.URL)
	}
	body, to := io.Pipe()
	go func() {
		w := bufio.NewWriter(to)
		if strings.HasSuffix(r.URL.Path, "/"+s.resource) {
			s.write(w)
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"apiVersion":"v1","kind":"Pod","metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}}`+"\n",
			s.objects+1, metav1.InitialEventsAnnotationKey)
		_ = w.Flush()
		<-r.Context().Done()
		_ = to.Close()
	}()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// write sends objects of eight replicas each, for pods.
func (s *apiServer) write(w io.Writer) {
	for n := range s.objects {
		object := strings.NewReplacer("OWNER", fmt.Sprintf("chat-%05d", n/8), "NAME", fmt.Sprintf("chat-%05d-7d9c5b6f88-%05d", n/8, n),
			"UID", fmt.Sprintf("5a0c1c3e-6f0e-4f0b-9c3b-%012d", n), "VERSION", strconv.Itoa(n+1)).Replace(s.object)
		if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", object); err != nil {
			return // the client has left
		}
	}
}

// everything serves all kinds.
type everything struct{}

func (everything) ServerResourcesForGroupVersionWithContext(context.Context, string) (*metav1.APIResourceList, error) {
	list := &metav1.APIResourceList{}
	for _, name := range []string{
		"variantautoscalings", "horizontalpodautoscalers", "scaledobjects", "deployments", "statefulsets", "leaderworkersets", "pods", "inferencepools", "namespaces", "nodes",
		"resourceslices",
	} {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// start returns the informers of the program when they have all objects of a server.
func start(tb testing.TB, s *apiServer) (i *informers.Informers, stop func()) {
	tb.Helper()
	client, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://api.test", QPS: -1}, &http.Client{Transport: s})
	require.NoError(tb, err)
	i = informers.New(informers.Params{Params: kit.Params{Log: zap.NewNop(), Client: client, Discovery: everything{}, Interval: time.Hour}})
	ctx, cancel := context.WithCancel(tb.Context())
	var running sync.WaitGroup
	i.WatchInventory()
	running.Go(func() { i.Run(ctx) })
	require.Eventually(tb, func() bool { return len(i.Unsynced()) == 0 }, kubetest.Patience, 10*time.Millisecond)
	return i, func() {
		cancel()
		running.Wait()
	}
}

// TestMemory compares what objects take with what they have: reading must drop nearly all of it.
func TestMemory(t *testing.T) {
	const objects = 1_000
	tests := []struct {
		resource, file string
		most           uint64 // bytes of an object: 10 000 of them take this many times 10 kB
	}{
		{"pods", "testdata/pod.yaml", 1000},
		{"deployments", "testdata/deployment.yaml", 2000},
		{"horizontalpodautoscalers", "testdata/hpa.yaml", 1000},
		{"nodes", "testdata/node.yaml", 15_000},         // mostly its labels: 2000 nodes take 30 MB
		{"resourceslices", "testdata/slice.yaml", 8000}, // eight devices: 2000 slices take 16 MB
	}
	for _, tt := range tests {
		server := newAPIServer(t, tt.resource, tt.file, objects)
		before := live()
		i, stop := start(t, server)
		used := live() - before
		count := len(i.Pods.List()) + len(i.Deployments.List()) + len(i.HorizontalPodAutoscalers.List()) + len(i.Nodes.List()) + len(i.ResourceSlices.List())
		stop()
		assert.Equal(t, objects, count)
		assert.Less(t, used/objects, tt.most, "%s of %d bytes", tt.resource, len(server.object))
	}
}

// BenchmarkObjects reads the objects of a large cluster, and reports the memory that each of them takes after that.
func BenchmarkObjects(b *testing.B) {
	const objects = 50_000
	for resource, file := range map[string]string{"pods": "testdata/pod.yaml", "deployments": "testdata/deployment.yaml", "horizontalpodautoscalers": "testdata/hpa.yaml"} {
		b.Run(resource, func(b *testing.B) {
			server := newAPIServer(b, resource, file, objects)
			for b.Loop() {
				before := live()
				_, stop := start(b, server)
				used := live() - before
				stop()
				b.ReportMetric(float64(used)/objects, "B/object")
			}
			b.ReportMetric(float64(len(server.object)), "B/JSON")
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
