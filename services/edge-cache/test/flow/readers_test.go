//go:build system || long

package flow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
)

var sliceResource = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

// clientKind is a way in which controllers read.
type clientKind struct {
	name string
	make func(t *testing.T, c *rest.Config) *cache.ListWatch
	kind runtime.Object
}

func clientKinds() []clientKind {
	typed := func(contentType string) func(t *testing.T, c *rest.Config) *cache.ListWatch {
		return func(t *testing.T, c *rest.Config) *cache.ListWatch {
			c.ContentType, c.AcceptContentTypes = contentType, contentType
			if contentType != "application/json" {
				c.AcceptContentTypes += ",application/json"
			}
			client, err := kubernetes.NewForConfig(c)
			require.NoError(t, err)
			api := client.DiscoveryV1().EndpointSlices("")
			return &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					return api.Watch(ctx, o)
				},
			}
		}
	}
	return []clientKind{
		{name: "typed protobuf", make: typed("application/vnd.kubernetes.protobuf"), kind: &discoveryv1.EndpointSlice{}},
		{name: "typed JSON", make: typed("application/json"), kind: &discoveryv1.EndpointSlice{}},
		{name: "dynamic", make: dynamicClient, kind: &unstructured.Unstructured{}},
		{name: "metadata", make: metadataClient, kind: &metav1.PartialObjectMetadata{}},
	}
}

func dynamicClient(t *testing.T, c *rest.Config) *cache.ListWatch {
	client, err := dynamic.NewForConfig(c)
	require.NoError(t, err)
	api := client.Resource(sliceResource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, o)
		},
	}
}

func metadataClient(t *testing.T, c *rest.Config) *cache.ListWatch {
	client, err := metadata.NewForConfig(c)
	require.NoError(t, err)
	api := client.Resource(sliceResource)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return api.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return api.Watch(ctx, o)
		},
	}
}

// plainList is a client without watch-lists, as client-go before 0.35.
type plainList struct{ *cache.ListWatch }

func (plainList) IsWatchListSemanticsUnSupported() bool { return true }

// informer runs an informer of a kind of client until the test ends.
func (e *edge) informer(k clientKind, lw cache.ListerWatcher) cache.SharedIndexInformer {
	e.t.Helper()
	i := cache.NewSharedIndexInformer(lw, k.kind, 0, cache.Indexers{})
	go i.RunWithContext(e.t.Context())
	return i
}

func synced(t *testing.T, i cache.SharedIndexInformer) {
	t.Helper()
	require.Eventually(t, i.HasSynced, kubetest.Patience, tick, "the informer does not sync")
}

// addresses returns a description of what an informer of slices has: the endpoints by object.
func addresses(t require.TestingT, objects []any) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		accessor, err := meta.Accessor(o)
		require.NoError(t, err)
		key := accessor.GetNamespace() + "/" + accessor.GetName()
		switch s := o.(type) {
		case *discoveryv1.EndpointSlice:
			out[key] = describe(s)
		case *unstructured.Unstructured:
			var typed discoveryv1.EndpointSlice
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(s.Object, &typed))
			out[key] = describe(&typed)
		default:
			out[key] = "metadata"
		}
	}
	return out
}

// describe returns everything of a slice that a pool must see as it is.
func describe(s *discoveryv1.EndpointSlice) string {
	lines := []string{fmt.Sprint(s.AddressType, len(s.Ports), s.Labels, s.UID)}
	for _, e := range s.Endpoints {
		node := "-"
		if e.NodeName != nil {
			node = *e.NodeName
		}
		lines = append(lines, fmt.Sprint(e.Addresses, node, e.Conditions.String(), e.Hints.String()))
	}
	sort.Strings(lines[1:])
	return strings.Join(lines, "\n")
}

// oracle is what a pool must see: a direct list, filtered here.
func (w *world) oracle(pool string) map[string]string {
	nodes, err := w.direct.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{LabelSelector: poolKey + "=" + pool})
	require.NoError(w.t, err)
	members := map[string]bool{}
	for _, n := range nodes.Items {
		members[n.Name] = true
	}
	all, err := w.direct.DiscoveryV1().EndpointSlices("").List(context.Background(), metav1.ListOptions{})
	require.NoError(w.t, err)
	out := map[string]string{}
	for i := range all.Items {
		s := &all.Items[i]
		s.Endpoints = slices.DeleteFunc(s.Endpoints,
			func(e discoveryv1.Endpoint) bool { return e.NodeName != nil && !members[*e.NodeName] })
		out[s.Namespace+"/"+s.Name] = describe(s)
	}
	return out
}

// converges waits until an informer has what the pool must see.
func (e *edge) converges(i cache.SharedIndexInformer) {
	e.t.Helper()
	e.convergesTo(i.GetStore().List)
}

// convergesTo is converges for any list of objects.
func (e *edge) convergesTo(list func() []any) {
	e.t.Helper()
	require.EventuallyWithT(e.t, func(c *assert.CollectT) {
		got, want := addresses(c, list()), e.oracle(e.cfg.Pool.Name)
		if slices.Contains(slices.Collect(maps.Values(got)), "metadata") {
			assert.ElementsMatch(c, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
			return
		}
		assert.Equal(c, want, got)
	}, kubetest.Patience, 50*time.Millisecond)
}
