package sources_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

func TestMain(m *testing.M) {
	kubetest.DropErrorBackoff()
	goleak.VerifyTestMain(m)
}

// plain is the discovery of a cluster without CRDs, or with ours only. It answers unless its mutex, if it has one, is locked.
type plain struct {
	ours bool
	mu   *sync.Mutex
}

func (p plain) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if p.mu != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
	}
	resources := map[string][]string{
		"v1": {"pods", "namespaces", "nodes"}, "apps/v1": {"deployments", "statefulsets"}, "autoscaling/v2": {"horizontalpodautoscalers"},
		"llmd.ai/v1alpha1": {"variantautoscalings"},
	}[groupVersion]
	if groupVersion == "llmd.ai/v1alpha1" && !p.ours || resources == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{}
	for _, name := range resources {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// run starts informers of a cluster with objects.
func run(t *testing.T, p plain, objects ...*unstructured.Unstructured) (*informers.Informers, dynamic.Interface) {
	t.Helper()
	lists := map[schema.GroupVersionResource]string{}
	for _, k := range informers.Declare("").EnabledKinds() {
		lists[k.Resource] = k.Name + "List"
	}
	all := make([]runtime.Object, 0, len(objects))
	for _, u := range objects {
		all = append(all, u)
	}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, all...)
	i := informers.New(informers.Params{Params: kit.Params{Log: zap.NewNop(), Client: client, Discovery: p, Interval: time.Minute}})
	return i, client
}

// TestInformers runs real informers: a cluster without CRDs has variants, and changes of objects that are not variants are not noticed.
func TestInformers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		objects := append(parse(t, deployments("x", "w")), object(t, hpa, "a", "x", "metadata|resourceVersion", `"1"`),
			object(t, hpa, "foreign", "w", "metadata|annotations", "null"))
		i, client := run(t, plain{}, objects...)
		_, err := sources.Collect(i.Caches, sources.Params{PerNamespace: perNamespace})
		require.ErrorContains(t, err, "not known yet")

		var mu sync.Mutex
		relevant := 0
		count := func(before, after any) {
			mu.Lock()
			defer mu.Unlock()
			if sources.IsRelevant(before, after) {
				relevant++
			}
		}
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { count(nil, o) }, UpdateFunc: count, DeleteFunc: func(o any) { count(o, nil) },
		}
		i.HorizontalPodAutoscalers.AddEventHandler(handler)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		synctest.Wait()
		require.Empty(t, i.Unsynced())
		describeNow := func() []string {
			got, err := sources.Collect(i.Caches, sources.Params{PerNamespace: perNamespace})
			require.NoError(t, err)
			return describe(got)
		}
		assert.Equal(t, []string{"models//m hpa/a 1..4 10000000 variantCost"}, describeNow())
		assert.Equal(t, 1, relevant)

		update := func(u *unstructured.Unstructured) {
			_, err := client.Resource(kindOf("horizontalpodautoscalers.autoscaling").Resource).Namespace("models").Update(ctx, u, metav1.UpdateOptions{})
			require.NoError(t, err)
			synctest.Wait()
		}
		update(object(t, hpa, "a", "x", "spec|maxReplicas", "9", "metadata|resourceVersion", `"2"`))
		assert.Equal(t, []string{"models//m hpa/a 1..9 10000000 variantCost"}, describeNow())
		assert.Equal(t, 2, relevant)
		update(object(t, hpa, "a", "x", "spec|maxReplicas", "9", "metadata|resourceVersion", `"3"`, "status", "{desiredReplicas: 3}"))
		assert.Equal(t, 2, relevant)
		update(object(t, hpa, "foreign", "w", "metadata|resourceVersion", `"4"`))
		assert.Equal(t, []string{"models//m hpa/a 1..9 10000000 variantCost", "models//m hpa/foreign 1..4 10000000 variantCost"}, describeNow())
		assert.Equal(t, 3, relevant, "it was annotated")
		require.NoError(t, client.Resource(kindOf("horizontalpodautoscalers.autoscaling").Resource).Namespace("models").Delete(ctx, "a", metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Equal(t, []string{"models//m hpa/foreign 1..4 10000000 variantCost"}, describeNow())
		assert.Equal(t, 3, relevant)
	})
}

func TestVariantAutoscalingsOfInformers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, _ := run(t, plain{ours: true}, append(parse(t, deployments("x")), object(t, va, "a", "x"), object(t, hpa, "b", "x"))...)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		synctest.Wait()
		got, err := sources.Collect(i.Caches, sources.Params{PerNamespace: perNamespace})
		require.NoError(t, err)
		assert.Equal(t, []string{"models//m va/a 1..0 10000000 default note:ConflictResolvedByArbitration", "rejected hpa/b TargetConflict"}, describe(got))
	})
}

// TestNodesAreWatchedOnDemand: nobody needs the permission to list nodes while the limiter is off.
func TestNodesAreWatchedOnDemand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "a"}}}
		var discovery sync.Mutex
		i, client := run(t, plain{mu: &discovery}, node)
		nodeLists := func() int {
			number := 0
			for _, action := range client.(*fake.FakeDynamicClient).Actions() {
				if action.GetResource().Resource == "nodes" {
					number++
				}
			}
			return number
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		time.Sleep(time.Hour)
		assert.Empty(t, i.Unsynced())
		assert.Zero(t, nodeLists())
		assert.False(t, i.Caches.Nodes.Listed())

		discovery.Lock() // a kind that the cluster does not serve counts as synced once discovery answers
		i.WatchInventory()
		i.WatchInventory() // at each change of settings
		assert.Equal(t, []string{"nodes", "clusterqueues.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io", "resourceflavors.kueue.x-k8s.io",
			"resourceslices.resource.k8s.io", "resourceclaims.resource.k8s.io", "resourceclaimtemplates.resource.k8s.io", "deviceclasses.resource.k8s.io"}, i.Unsynced())
		discovery.Unlock()
		synctest.Wait()
		assert.Empty(t, i.Unsynced())
		assert.Len(t, i.Caches.Nodes.List(), 1)
		assert.Equal(t, 2, nodeLists(), "one list and one watch")
	})
}
