//go:build system || long

package flow

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/testlane"
)

// TestRandomOperationsEqualTheOracle compares the cache with direct lists after random changes of slices and of the pool, with resets of
// the link and restarts of the cache between them.
func TestRandomOperationsEqualTheOracle(t *testing.T) {
	t.Parallel()
	operations := testlane.Repetitions(700, 10_000)
	w := newWorld(t)
	const nodes = 6
	for i := range nodes {
		w.node(fmt.Sprintf("n%d", i), []string{"edge", "other"}[i%2])
	}
	e := w.edge("edge").ready()
	kinds := clientKinds()
	informer := e.informer(kinds[0], kinds[0].make(t, e.rest()))
	full := e.reflector(kinds[0], kinds[0].make(t, e.rest()))
	plain := e.reflector(kinds[2], plainList{kinds[2].make(t, e.rest())})
	tail := e.follow(t)

	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range operations {
		w.randomOperation(t, r, nodes)
		if i%97 == 96 {
			w.network.set(linkCut)
			w.randomOperation(t, r, nodes)
			w.network.set(linkUp)
		}
		if i%311 == 310 {
			e.restart()
			e.ready()
		}
		if i%200 == 199 {
			e.convergesTo(full.List)
			e.convergesTo(plain.List)
		}
	}
	e.convergesTo(full.List)
	e.convergesTo(plain.List)
	// After so many restarts, an informer waits up to a minute before it connects again.
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, e.oracle("edge"), addresses(c, informer.GetStore().List())) },
		kubetest.Patience, 100*time.Millisecond)
	require.EventuallyWithT(t, func(c *assert.CollectT) { assert.Equal(c, e.oracle("edge"), tail.state()) }, kubetest.Patience,
		50*time.Millisecond)
	assert.Empty(t, tail.problems())
}

// reflector is an informer without its pauses, which get as long as a minute when the cache often restarts.
func (e *edge) reflector(k clientKind, lw cache.ListerWatcher) cache.Store {
	e.t.Helper()
	s := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	r := cache.NewReflectorWithOptions(lw, k.kind, s, cache.ReflectorOptions{
		Backoff: &wait.Backoff{Duration: 50 * time.Millisecond, Cap: 500 * time.Millisecond, Steps: 10, Factor: 2, Jitter: 1},
	})
	go r.RunWithContext(e.t.Context())
	return s
}

// randomOperation changes a slice or the pool of a node.
func (w *world) randomOperation(t *testing.T, r *rand.Rand, nodes int) {
	t.Helper()
	name := fmt.Sprintf("s%d", r.IntN(12))
	api := w.direct.DiscoveryV1().EndpointSlices("default")
	var some []string
	for range r.IntN(5) {
		some = append(some, fmt.Sprintf("n%d", r.IntN(nodes)))
	}
	var err error
	switch r.IntN(8) {
	case 0:
		// One node always stays in the pool: an empty pool is held.
		w.label(fmt.Sprintf("n%d", 1+r.IntN(nodes-1)), []string{"edge", "other", ""}[r.IntN(3)])
	case 1, 2:
		err = api.Delete(t.Context(), name, metav1.DeleteOptions{})
	default:
		made := slice("default", fmt.Sprintf("svc%d", r.IntN(3)), name, some...)
		if _, err = api.Create(t.Context(), made, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			var live *discoveryv1.EndpointSlice
			if live, err = api.Get(t.Context(), name, metav1.GetOptions{}); err == nil {
				made.ResourceVersion = live.ResourceVersion
				_, err = api.Update(t.Context(), made, metav1.UpdateOptions{})
			}
		}
	}
	if !apierrors.IsNotFound(err) {
		require.NoError(t, err)
	}
}

// tail is a client that lists once and then only watches, from the last version that it saw, and ends its watches itself from time to time.
type tail struct {
	mu      sync.Mutex
	objects map[string]string
	faults  []string
	lists   int
}

func (e *edge) follow(t *testing.T) *tail {
	t.Helper()
	f := &tail{objects: map[string]string{}}
	client := e.client()
	go func() {
		for t.Context().Err() == nil {
			f.once(t.Context(), client)
		}
	}()
	return f
}

// once lists, and watches until a version is refused.
func (f *tail) once(ctx context.Context, client kubernetes.Interface) {
	api := client.DiscoveryV1().EndpointSlices("")
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		time.Sleep(50 * time.Millisecond)
		return
	}
	f.mu.Lock()
	f.lists++
	clear(f.objects)
	for i := range list.Items {
		f.objects[list.Items[i].Namespace+"/"+list.Items[i].Name] = describe(&list.Items[i])
	}
	f.mu.Unlock()
	for rv := list.ResourceVersion; rv != "" && ctx.Err() == nil; {
		rv = f.watch(ctx, client, rv)
	}
}

// watch returns the version to go on with, or "" to list again.
func (f *tail) watch(ctx context.Context, client kubernetes.Interface, rv string) string {
	limited, cancel := context.WithTimeout(ctx, time.Duration(50+rand.IntN(500))*time.Millisecond)
	defer cancel()
	w, err := client.DiscoveryV1().EndpointSlices("").Watch(limited, metav1.ListOptions{ResourceVersion: rv, AllowWatchBookmarks: true})
	if err != nil {
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
		return rv
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		s, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			return ""
		}
		f.apply(string(event.Type), s, rv)
		rv = s.ResourceVersion
	}
	return rv
}

func (f *tail) apply(typ string, s *discoveryv1.EndpointSlice, last string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := s.Namespace + "/" + s.Name
	_, exists := f.objects[key]
	if len(s.ResourceVersion) < len(last) || len(s.ResourceVersion) == len(last) && s.ResourceVersion < last ||
		typ != "BOOKMARK" && s.ResourceVersion == last {
		f.faults = append(f.faults, fmt.Sprintf("version of %s %s did not rise: %s after %s", typ, key, s.ResourceVersion, last))
	}
	switch typ {
	case "ADDED":
		if exists {
			f.faults = append(f.faults, "ADDED twice: "+key)
		}
		f.objects[key] = describe(s)
	case "MODIFIED":
		if !exists {
			f.faults = append(f.faults, "MODIFIED without ADDED: "+key)
		}
		f.objects[key] = describe(s)
	case "DELETED":
		if !exists {
			f.faults = append(f.faults, "DELETED without ADDED: "+key)
		}
		delete(f.objects, key)
	}
}

func (f *tail) state() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[string]string, len(f.objects))
	for k, v := range f.objects {
		out[k] = v
	}
	return out
}

func (f *tail) problems() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.faults...)
}
