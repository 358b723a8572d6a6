package informers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		name  string
		apis  served
		want  string
		other []string // what is left in v1alpha1
	}{
		{
			name: "all versions",
			apis: served{
				group + "v1beta2": {"nodepools"}, group + "v1beta1": {"nodepools"}, group + "v1alpha1": {"yurtingresses", "nodepools"},
			},
			want: "v1beta2", other: []string{"yurtingresses"},
		},
		{
			name: "two versions", apis: served{group + "v1beta1": {"nodepools"}, group + "v1alpha1": {"yurtingresses", "nodepools"}},
			want: "v1beta1", other: []string{"yurtingresses"},
		},
		{
			name: "a newer version of other kinds",
			apis: served{group + "v1beta2": {"yurtappsets"}, group + "v1alpha1": {"nodepools", "yurtingresses"}}, want: "v1alpha1",
			other: []string{"nodepools", "yurtingresses"},
		},
		{name: "none", apis: served{group + "v1alpha1": {"yurtingresses"}}, other: []string{"yurtingresses"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var found []string
			for _, version := range nodePoolVersions {
				list, err := preferredVersions{tt.apis}.ServerResourcesForGroupVersionWithContext(t.Context(), group+version)
				if apierrors.IsNotFound(err) {
					continue
				}
				require.NoError(t, err)
				var names []string
				for _, r := range list.APIResources {
					names = append(names, r.Name)
					if r.Name == "nodepools" {
						found = append(found, version)
					}
				}
				if version == "v1alpha1" {
					assert.Equal(t, tt.other, names)
				}
			}
			if tt.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Equal(t, []string{tt.want}, found)
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
		definitions := Kinds(Options{Traefik: traefik}).Definitions
		assert.NotEmpty(t, definitions)
		for _, kind := range definitions {
			assert.Equal(t, !traefik, kind.Off, kind.Fields)
		}
	}
}
