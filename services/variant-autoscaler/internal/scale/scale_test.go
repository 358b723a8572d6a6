package scale

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// rig is an API server with one kind that has a scale, and one that has none.
type rig struct {
	*Reader

	clock *clocktesting.FakeClock
	asked int   // of discovery
	fails error // of a read
	read  int
}

func (r *rig) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	r.asked++
	if groupVersion != "production-stack.vllm.ai/v1alpha1" {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	return &metav1.APIResourceList{APIResources: []metav1.APIResource{
		{Name: "vllmruntimes", Kind: "VLLMRuntime", Namespaced: true}, {Name: "vllmruntimes/scale", Kind: "Scale", Namespaced: true},
		{Name: "clusterruntimes", Kind: "ClusterRuntime"}, {Name: "clusterruntimes/scale", Kind: "Scale"},
		{Name: "vllmrouters", Kind: "VLLMRouter", Namespaced: true}, {Name: "vllmrouters/status", Kind: "VLLMRouter", Namespaced: true},
	}}, nil
}

func start() *rig {
	r := &rig{clock: clocktesting.NewFakeClock(time.Unix(0, 0))}
	client := fake.NewSimpleDynamicClient(runtime.NewScheme())
	client.PrependReactor("get", "vllmruntimes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		r.read++
		get := action.(clienttesting.GetAction)
		switch {
		case r.fails != nil:
			return true, nil, r.fails
		case get.GetSubresource() != "scale" || get.GetNamespace() == "":
			return true, nil, errors.New("nobody asks for that")
		case get.GetName() == "none":
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "vllmruntimes"}, "none")
		}
		return true, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": map[string]any{"replicas": int64(4)},
			"status": map[string]any{"replicas": int64(3), "selector": "app=rt,tier in (a,b)"},
		}}, nil
	})
	r.Reader = NewReader(client, NewKinds(r, r.clock))
	return r
}

func target(kind, name string) snapshot.Target {
	return snapshot.Target{APIVersion: "production-stack.vllm.ai/v1alpha1", Kind: kind, Name: name}
}

func TestRead(t *testing.T) {
	t.Parallel()
	r := start()
	read, end := r.BeginPass(t.Context())
	got, err := read("models", target("VLLMRuntime", "rt"))
	require.NoError(t, err)
	assert.Equal(t, "app=rt,tier in (a,b)", got.Selector.String())
	got.Selector = nil
	assert.Equal(t, &Scale{Replicas: 4, Current: 3, Labels: map[string]string{"app": "rt"}}, got)
	for _, tt := range []struct {
		name   string
		target snapshot.Target
		want   error
	}{
		{"no object", target("VLLMRuntime", "none"), ErrNotFound},
		{"a kind without a scale", target("VLLMRouter", "r"), ErrNoScale},
		{"a kind without namespaces", target("ClusterRuntime", "rt"), ErrNoScale},
		{"a kind that nobody serves", target("Other", "r"), ErrNoScale},
		{"a group that nobody serves", snapshot.Target{APIVersion: "x/v1", Kind: "VLLMRuntime", Name: "rt"}, ErrNoScale},
		{"no version", snapshot.Target{Kind: "VLLMRuntime", Name: "rt"}, ErrNoScale},
	} {
		_, err := read("models", tt.target)
		require.ErrorIs(t, err, tt.want, tt.name)
	}
	end()
	asked := r.asked
	read, end = r.BeginPass(t.Context())
	_, err = read("models", target("VLLMRuntime", "rt"))
	require.NoError(t, err)
	assert.Equal(t, asked, r.asked, "kinds are remembered")

	r.fails = apierrors.NewForbidden(schema.GroupResource{Resource: "vllmruntimes"}, "rt", errors.New("no role"))
	_, err = read("models", target("VLLMRuntime", "rt"))
	require.ErrorIs(t, err, ErrNoScale)
	require.ErrorContains(t, err, "grant get on vllmruntimes/scale")
	end()
	r.clock.Step(kindTime)
	read, _ = r.BeginPass(t.Context())
	_, _ = read("models", target("VLLMRuntime", "rt"))
	assert.Equal(t, asked+1, r.asked)
}

// TestOutage: what cannot be read for a moment is as before.
func TestOutage(t *testing.T) {
	t.Parallel()
	r := start()
	pass := func(name string) (*Scale, error) {
		read, end := r.BeginPass(t.Context())
		defer end()
		return read("models", target("VLLMRuntime", name))
	}
	_, err := pass("rt")
	require.NoError(t, err)
	r.fails = errors.New("no answer")
	for range 2 {
		got, err := pass("rt")
		require.NoError(t, err)
		assert.Equal(t, int64(4), got.Replicas)
	}
	r.fails = apierrors.NewNotFound(schema.GroupResource{Resource: "vllmruntimes"}, "rt")
	_, err = pass("rt")
	require.ErrorIs(t, err, ErrNotFound, "an answer is no outage")
	r.fails = nil
	_, err = pass("rt")
	require.NoError(t, err)
	r.fails = errors.New("no answer")
	_, err = pass("new")
	require.ErrorContains(t, err, "read its scale: no answer")
	_, err = pass("rt")
	require.Error(t, err, "the pass before did not ask for it")
}

// TestReadUnset: an object whose replicas nobody has set has none.
func TestReadUnset(t *testing.T) {
	t.Parallel()
	r := start()
	r.fails = apierrors.NewInternalError(errors.New(`the spec replicas field ".spec.replicas" does not exist`))
	read, end := r.BeginPass(t.Context())
	defer end()
	got, err := read("models", target("VLLMRuntime", "rt"))
	require.NoError(t, err)
	assert.Equal(t, &Scale{}, got)
	r.fails = apierrors.NewInternalError(errors.New("etcd has no leader"))
	_, err = read("models", target("VLLMRuntime", "new"))
	require.ErrorContains(t, err, "etcd has no leader")
}

// TestKindsAreForgotten: a tenant who asks for ever new kinds fills no memory.
func TestKindsAreForgotten(t *testing.T) {
	t.Parallel()
	r := start()
	read, end := r.BeginPass(t.Context())
	defer end()
	for i := range 100 {
		_, err := read("models", snapshot.Target{APIVersion: "x/v1", Kind: fmt.Sprint("Kind", i), Name: "n"})
		require.ErrorIs(t, err, ErrNoScale)
		r.clock.Step(time.Minute)
	}
	assert.LessOrEqual(t, r.kinds.resources.Len(), int(kindTime/time.Minute))
}

// TestReadsAreBounded: the targets of a namespace take no reads from others.
func TestReadsAreBounded(t *testing.T) {
	t.Parallel()
	r := start()
	read, end := r.BeginPass(t.Context())
	defer end()
	refused := 0
	for i := range 2 * maxOfNamespace {
		if _, err := read("models", target("VLLMRuntime", fmt.Sprint("rt-", i))); err != nil {
			refused++
			assert.ErrorContains(t, err, "a pass reads at most 512 targets of such kinds, and 128 of a namespace")
		}
	}
	assert.Equal(t, maxOfNamespace, refused)
	_, err := read("other", target("VLLMRuntime", "rt"))
	require.NoError(t, err)
	assert.Equal(t, maxOfNamespace+1, r.read)
	for i := range 2 * maxReads {
		_, _ = read(fmt.Sprint("ns-", i), target("VLLMRuntime", "rt"))
	}
	assert.Equal(t, maxReads, r.read, "what was refused is not counted")
}

// TestSelectors: an empty selector selects nothing, as for a HorizontalPodAutoscaler.
func TestSelectors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{"": nil, "=": nil, "a in (b),c=d,e!=f": {"a": "b", "c": "d"}} {
		got := scaleOf(&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"selector": text}}})
		assert.Equal(t, want, got.Labels, text)
		assert.Equal(t, want != nil, got.Selector != nil, text)
	}
}
