package informers

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	kit "fairlead.dev/pkg/informers"
)

// served has the resources of each version of an API server.
type served map[string][]string

func (s served) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	names, found := s[groupVersion]
	if !found {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{}
	for _, name := range names {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

// TestPreferredVersion finds NodePools in one version only, and leaves other kinds alone.
func TestPreferredVersion(t *testing.T) {
	t.Parallel()
	group := v1alpha1.SchemeGroupVersion.Group + "/"
	tests := []struct {
		name string
		apis served
		want []string
	}{
		{
			name: "all versions",
			apis: served{
				group + "v1beta2": {"nodepools"}, group + "v1beta1": {"nodepools"}, group + "v1alpha1": {"yurtingresses", "nodepools"},
			},
			want: []string{"v1beta2"},
		},
		{
			name: "two versions", apis: served{group + "v1beta1": {"nodepools"}, group + "v1alpha1": {"yurtingresses", "nodepools"}},
			want: []string{"v1beta1"},
		},
		{
			name: "a newer version of other kinds",
			apis: served{group + "v1beta2": {"yurtappsets"}, group + "v1alpha1": {"nodepools", "yurtingresses"}},
			want: []string{"v1alpha1"},
		},
		{name: "none", apis: served{group + "v1alpha1": {"yurtingresses"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lists := map[schema.GroupVersionResource]string{}
				for _, k := range (Options{}).Declare().EnabledKinds() {
					lists[k.Resource] = k.Name + "List"
				}
				client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists)
				i := New(kit.Params{Log: zap.NewNop(), Client: client, Discovery: tt.apis, Interval: time.Minute}, Options{})
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { i.Run(ctx) })
				defer func() { cancel(); running.Wait() }()
				time.Sleep(2 * time.Minute)
				require.Empty(t, i.Unsynced())
				var found []string
				for n, version := range nodePoolVersions {
					if i.NodePools[n].Listed() {
						found = append(found, version)
					}
				}
				assert.Equal(t, tt.want, found)
				assert.True(t, i.YurtIngresses.Listed())
			})
		})
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	transform := trimNode([]string{"pool"})
	n := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "n", "labels": map[string]any{"pool": "a", "other": "b"}},
		"status": map[string]any{
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}, "images": []any{map[string]any{"names": []any{"x"}}},
		},
	}}
	obj, err := transform(n)
	require.NoError(t, err)
	assert.Equal(t, &Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "a"}}, Ready: true}, obj)
	labels, err := kit.IndexBy(labelsOf)(obj)
	require.NoError(t, err)
	assert.Equal(t, []string{"pool=a"}, labels)
	n.Object["status"] = "broken"
	obj, err = transform(n)
	require.NoError(t, err, "one node does not fail the list")
	assert.False(t, obj.(*Node).Ready)
}

// TestDefinitions are watched only where pools may have Traefik.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	for _, traefik := range []bool{false, true} {
		var definitions []kit.Kind
		Options{Traefik: traefik}.Declare()(func(k kit.Kind) kit.Informer {
			if k.Name == "CustomResourceDefinition" {
				definitions = append(definitions, k)
			}
			return nil
		})
		assert.NotEmpty(t, definitions)
		for _, kind := range definitions {
			assert.Equal(t, !traefik, kind.Off, kind.Fields)
		}
	}
}
