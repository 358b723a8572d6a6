package apply

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"fairlead.dev/pkg/kubetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var services = schema.GroupVersionResource{Version: "v1", Resource: "services"}

// service returns the wanted Service of an owner.
func service(owner types.UID, change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "chat", "namespace": "default", "labels": map[string]any{"app": "chat", "tier": "front"}},
		"spec":     map[string]any{"ports": []any{map[string]any{"name": "http", "port": int64(80)}}, "selector": map[string]any{"app": "chat"}},
	}}
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner, Controller: &yes}})
	for _, f := range change {
		f(u)
	}
	return u
}

func without(fields ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, fields...) }
}

func with(value any, fields ...string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		if err := unstructured.SetNestedField(u.Object, value, fields...); err != nil {
			panic(err)
		}
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}
	tests := []struct {
		name string
		live func(*unstructured.Unstructured)
		want bool
	}{
		{name: "no change", live: func(*unstructured.Unstructured) {}},
		{name: "defaults", live: with("ClusterIP", "spec", "type")},
		{name: "a default within a list", live: with([]any{map[string]any{"name": "http", "port": int64(80), "protocol": "TCP"}}, "spec", "ports")},
		{name: "label of another client", live: with("1", "metadata", "labels", "other")},
		{name: "status", live: with("1.2.3.4", "status", "ip")},
		{name: "additional owner", live: func(u *unstructured.Unstructured) { u.SetOwnerReferences(append(u.GetOwnerReferences(), other)) }},
		{name: "a number of another type", live: with([]any{map[string]any{"name": "http", "port": float64(80)}}, "spec", "ports")},
		{name: "a label is gone", live: without("metadata", "labels", "app"), want: true},
		{name: "a label has another value", live: with("back", "metadata", "labels", "tier"), want: true},
		{name: "a port has another number", live: with([]any{map[string]any{"name": "http", "port": int64(81)}}, "spec", "ports"), want: true},
		{name: "additional port", live: with([]any{map[string]any{"name": "http", "port": int64(80)}, map[string]any{"name": "more", "port": int64(81)}}, "spec", "ports"), want: true},
		{name: "no ports", live: without("spec", "ports"), want: true},
		{name: "additional label in the selector of a Service", live: with("x", "spec", "selector", "other"), want: true},
		{name: "string instead of a map", live: with("app", "spec", "selector"), want: true},
		{name: "no owner", live: without("metadata", "ownerReferences"), want: true},
		{name: "another generation", live: func(u *unstructured.Unstructured) { u.SetGeneration(4) }, want: true},
		{name: "a kind without generations", live: func(u *unstructured.Unstructured) { u.SetGeneration(0) }},
		{name: "record of another wanted object", live: with("older", "metadata", "annotations", HashAnnotation), want: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			wanted := service("uid")
			live := withRecord(wanted, 3)
			live.SetGeneration(3)
			tt.live(live)
			assert.Equal(t, tt.want, Differs(wanted, live))
		})
	}
	assert.True(t, Differs(service("uid"), nil))
}

// The first apply after a create is of the version that the migration of managed fields has made. TestApplier shows why.
func TestApplyAfterMigration(t *testing.T) {
	t.Parallel()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	var applied []string
	client.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		if patch.GetPatchType() == types.JSONPatchType {
			return true, service("uid", with("2", "metadata", "resourceVersion")), nil
		}
		next := &unstructured.Unstructured{}
		err := next.UnmarshalJSON(patch.GetPatch())
		applied = append(applied, next.GetResourceVersion())
		return true, next, err
	})
	changed := service("uid", with("back", "metadata", "labels", "tier"))
	live := service("uid", with("1", "metadata", "resourceVersion"))
	for _, operation := range []metav1.ManagedFieldsOperationType{metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply} {
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: "test", Operation: operation, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)},
		}})
		_, result, err := New(client, "test").Apply(t.Context(), services, changed, live)
		require.NoError(t, err)
		assert.Equal(t, Updated, result)
	}
	assert.Equal(t, []string{"2", ""}, applied)
}

// TestApplyWritesOnlyDifferences: TestApplier shows the effect of the writes in an API server.
func TestApplyWritesOnlyDifferences(t *testing.T) {
	t.Parallel()
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("patch", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := action.(clienttesting.PatchActionImpl)
		assert.Equal(t, types.ApplyPatchType, patch.GetPatchType())
		assert.True(t, *patch.PatchOptions.Force)
		next := &unstructured.Unstructured{}
		err := next.UnmarshalJSON(patch.GetPatch())
		return true, next, errors.Join(err, client.Tracker().Update(services, next, "default"))
	})
	a := New(client, "test")
	apply := func(wanted, live *unstructured.Unstructured) (*unstructured.Unstructured, Result) {
		stored, result, err := a.Apply(t.Context(), services, wanted, live)
		require.NoError(t, err)
		assert.False(t, Differs(wanted, stored))
		return stored, result
	}
	write := func(verb string) kubetest.Action {
		return kubetest.Action{Verb: verb, Resource: "services", Namespace: "default", Name: "chat"}
	}

	wanted, changed := service("uid"), service("uid", with("back", "metadata", "labels", "tier"))
	live, result := apply(wanted, nil)
	assert.Equal(t, Created, result)
	_, result = apply(wanted, live)
	assert.Equal(t, Unchanged, result)
	kubetest.AssertWrites(t, client, write("create"))

	live, result = apply(changed, live)
	assert.Equal(t, Updated, result)
	kubetest.AssertWrites(t, client, write("create"), write("patch"))
	_, result = apply(changed, nil)
	assert.Equal(t, Unchanged, result, "the informer is stale: create is refused")
	kubetest.AssertWrites(t, client, write("create"), write("patch"), write("create"))

	_, _, err := a.Apply(t.Context(), services, service("another"), live)
	require.ErrorIs(t, err, ErrForeign)
	require.ErrorIs(t, a.Delete(t.Context(), services, live, "another"), ErrForeign)
	kubetest.AssertWrites(t, client, write("create"), write("patch"), write("create"))
	require.NoError(t, a.Delete(t.Context(), services, live, "uid"))
	require.NoError(t, a.Delete(t.Context(), services, live, "uid"), "it no longer exists")
	kubetest.AssertWrites(t, client, write("create"), write("patch"), write("create"), write("delete"), write("delete"))
}
