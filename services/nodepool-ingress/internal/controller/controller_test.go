package controller

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

func TestWebhookOf(t *testing.T) {
	t.Parallel()
	denied := apierrors.NewForbidden(schema.GroupResource{}, "edge", nil)
	denied.ErrStatus.Message = `admission webhook "vyurtingress.kb.io" denied the request: no`
	called := apierrors.NewInternalError(errors.New(`failed calling webhook "a.b": connection refused`))
	tests := []struct {
		err  error
		want string
	}{
		{fmt.Errorf("add finalizer: %w", denied), "vyurtingress.kb.io"},
		{called, "a.b"},
		{errors.New(`failed calling webhook "a.b"`), ""}, // not an answer of an API server
		{apierrors.NewNotFound(schema.GroupResource{}, "x"), ""},
		{nil, ""},
	}
	for _, tt := range tests {
		name, found := webhookOf(tt.err)
		assert.Equal(t, tt.want, name)
		assert.Equal(t, tt.want != "", found)
	}
	assert.Equal(t, v1alpha1.ReasonAdmissionRejected, failureOf(called).Reason)
	assert.Equal(t, v1alpha1.ReasonNotWritten, failureOf(errors.New("x")).Reason)
}

func TestUnchanged(t *testing.T) {
	t.Parallel()
	node := func(ready bool, pool string) *informers.Node {
		return &informers.Node{ObjectMeta: metav1.ObjectMeta{UID: "n", Labels: map[string]string{"a": pool}}, Ready: ready}
	}
	assert.True(t, sameNode(node(true, "x"), node(true, "x")), "a heartbeat")
	assert.False(t, sameNode(node(true, "x"), node(false, "x")))
	assert.False(t, sameNode(node(true, "x"), node(true, "y")))
	object := func(generation int64, ready int32, finalizers ...string) *v1alpha1.YurtIngress {
		return &v1alpha1.YurtIngress{
			ObjectMeta: metav1.ObjectMeta{UID: "y", Generation: generation, Finalizers: finalizers},
			Status:     v1alpha1.YurtIngressStatus{ReadyNum: ready},
		}
	}
	assert.True(t, isUnchanged(object(1, 1), object(1, 1)))
	assert.False(t, isUnchanged(object(1, 1), object(2, 1)))
	assert.False(t, isUnchanged(object(1, 1), object(1, 2)), "the status is kept true")
	assert.False(t, isUnchanged(object(1, 1), object(1, 1, "f")))
	assert.True(t, hasSameClaims(object(1, 1), object(1, 2)), "a status does not matter to others")
	assert.False(t, hasSameClaims(object(1, 1), object(2, 1)))
}

// TestNamesForPoolOf: a YurtIngress waits for a pool until the last object there is gone, which can be any kind.
func TestNamesForPoolOf(t *testing.T) {
	t.Parallel()
	caches, err := informers.Options{}.Declare().Read(kit.Snapshot{Objects: []*unstructured.Unstructured{
		yurtIngress("first", "other"), yurtIngress("second", "a"), yurtIngress("third", "b"),
	}})
	require.NoError(t, err)
	h := handlers{informers: &informers.Informers{Caches: caches}}
	names := h.namesForPoolOf(&metav1.ObjectMeta{Labels: map[string]string{v1alpha1.LabelPool: "a"}})
	assert.Equal(t, []cache.ObjectName{{Name: "second"}}, names)
	assert.Empty(t, h.namesForPoolOf(&metav1.ObjectMeta{}))
}

// TestRecordContest_OnAConflict: it says nothing about a webhook, so the delay between attempts goes on to grow.
func TestRecordContest_OnAConflict(t *testing.T) {
	t.Parallel()
	key := plan.Key{Name: "a"}
	p := &pass{state: &writeState{contested: map[plan.Key]contest{key: {delay: minContestDelay}}}}
	p.recordContest(key, fmt.Errorf("apply: %w", apierrors.NewConflict(schema.GroupResource{}, "a", nil)))
	assert.Contains(t, p.state.contested, key)
	p.recordContest(key, nil)
	assert.Empty(t, p.state.contested)
}

func yurtIngress(name, pool string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion.String(), "kind": "YurtIngress", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"pools": []any{map[string]any{"name": pool}}},
	}}
}
