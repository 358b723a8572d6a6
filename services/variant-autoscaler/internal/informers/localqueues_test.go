package informers

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

var chat = cache.ObjectName{Namespace: "models", Name: "chat"}

func localQueueOf(version, clusterQueue string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/" + version, "kind": "LocalQueue", "metadata": map[string]any{"namespace": chat.Namespace, "name": chat.Name},
		"spec": map[string]any{"clusterQueue": clusterQueue},
	}}
}

func newClient(objects ...runtime.Object) *fake.FakeDynamicClient {
	lists := map[schema.GroupVersionResource]string{}
	for _, r := range LocalQueueResources() {
		lists[r] = "LocalQueueList"
	}
	return fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, objects...)
}

// read reads one LocalQueue in a pass of its own.
func read(t *testing.T, r *QueueReader, name cache.ObjectName) (*inventory.LocalQueue, error) {
	t.Helper()
	one, end := r.BeginPass(t.Context())
	defer end()
	return one(name)
}

func TestReader(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1beta1", "v1beta2"} {
		client := newClient(localQueueOf(version, "serving"))
		r := NewQueueReader(client)
		one, end := r.BeginPass(t.Context())
		q, err := one(chat)
		require.NoError(t, err, version)
		assert.Equal(t, &inventory.LocalQueue{Namespace: "models", Name: "chat", ClusterQueue: "serving"}, q)
		requests := len(client.Actions())
		again, err := one(chat)
		require.NoError(t, err)
		assert.Same(t, q, again)
		assert.Len(t, client.Actions(), requests, "one read in a pass")
		_, err = one(cache.ObjectName{Namespace: "models", Name: "none"})
		require.ErrorIs(t, err, ErrQueueNotFound)
		end()
	}
}

// TestReaderOutage: what cannot be read for a moment is as before. What may not be read, or is gone, is not.
func TestReaderOutage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string // empty: as before
	}{
		{apierrors.NewServiceUnavailable("etcd"), ""},
		{context.DeadlineExceeded, ""},
		{apierrors.NewForbidden(LocalQueueResources()[0].GroupResource(), "chat", errors.New("no role")), "grant get of localqueues (limiter.enabled of the chart): "},
		{apierrors.NewNotFound(LocalQueueResources()[0].GroupResource(), "chat"), "it does not exist"},
	} {
		client := newClient(localQueueOf("v1beta2", "serving"))
		r := NewQueueReader(client)
		before, err := read(t, r, chat)
		require.NoError(t, err)
		client.PrependReactor("get", "localqueues", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, tt.err })
		after, err := read(t, r, chat)
		if tt.want == "" {
			require.NoError(t, err)
			assert.Same(t, before, after)
			_, err = read(t, r, chat)
			require.NoError(t, err, "for as long as it lasts")
			_, err = read(t, NewQueueReader(client), chat)
			require.ErrorIs(t, err, tt.err, "nothing is known from before")
			continue
		}
		require.ErrorContains(t, err, tt.want)
	}
}

// TestReaderBounds: neither a namespace nor all together can have more than a number of requests in a pass.
func TestReaderBounds(t *testing.T) {
	t.Parallel()
	client := newClient()
	one, end := NewQueueReader(client).BeginPass(t.Context())
	defer end()
	last := error(nil)
	for n := range maxQueuesOfNamespace + 1 {
		_, last = one(cache.ObjectName{Namespace: "models", Name: fmt.Sprint(n)})
	}
	require.ErrorIs(t, last, ErrTooManyQueues)
	_, err := one(cache.ObjectName{Namespace: "others", Name: "0"})
	require.ErrorIs(t, err, ErrQueueNotFound)
	for n := range 1000 {
		_, last = one(cache.ObjectName{Namespace: fmt.Sprint(n), Name: "0"})
	}
	require.ErrorIs(t, last, ErrTooManyQueues)
	assert.Len(t, client.Actions(), maxQueueReads*2, "two versions")
}
