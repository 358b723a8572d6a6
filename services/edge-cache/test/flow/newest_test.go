//go:build system

package flow

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
)

// lateWatches passes everything on. While it is locked, events of watches wait.
type lateWatches struct {
	sync.RWMutex
}

func (l *lateWatches) serve(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w = &lateWriter{ResponseWriter: w, gate: l}
		}
		next.ServeHTTP(w, r)
	}
}

type lateWriter struct {
	http.ResponseWriter

	gate *lateWatches
}

func (l *lateWriter) Unwrap() http.ResponseWriter { return l.ResponseWriter }

func (l *lateWriter) Write(p []byte) (int, error) {
	l.gate.RLock()
	defer l.gate.RUnlock()
	return l.ResponseWriter.Write(p)
}

// TestListOfTheNewestState asks for the newest state while the watch of the cache is late. The list waits for it, as long as the API server
// would, and not longer.
func TestListOfTheNewestState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.createSlice(slice("default", "a", "gone", "in-1"))
	w.createSlice(slice("default", "a", "kept", "in-1"))
	l, late := w.liar(), &lateWatches{}
	l.tell(late.serve(l.proxy))
	e := w.edge("edge", l.configure).ready().online()
	list := func() []string { return e.confirmedList(slicesPath) }
	all := []string{"gone", "kept", "kubernetes"}
	assert.ElementsMatch(t, all, list())

	// A change of another kind: nothing is late, and nothing waits.
	_, err := w.direct.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "other"}},
		metav1.CreateOptions{})
	require.NoError(t, err)
	late.Lock()
	assert.ElementsMatch(t, all, list())

	slices := w.direct.DiscoveryV1().EndpointSlices("default")
	changes := []func() error{
		func() error { w.createSlice(slice("default", "a", "new", "in-1")); return nil },
		func() error { return slices.Delete(t.Context(), "gone", metav1.DeleteOptions{}) },
	}
	wants := [][]string{{"gone", "kept", "kubernetes", "new"}, {"kept", "kubernetes", "new"}}
	for i, change := range changes {
		require.NoError(t, change())
		var released atomic.Bool
		time.AfterFunc(time.Second, func() { released.Store(true); late.Unlock() })
		assert.ElementsMatch(t, wants[i], list())
		require.True(t, released.Load(), "the list did not wait for the watch")
		late.Lock()
	}

	w.createSlice(slice("default", "a", "late", "in-1"))
	before := e.metric(unconfirmedReads)
	assert.ElementsMatch(t, wants[1], names(ask(t, e.rest(), slicesPath, values(), "")), "the watch sends nothing: what is stored")
	assert.Equal(t, max(before, 0)+1, e.metric(unconfirmedReads))
	late.Unlock()
}

const unconfirmedReads = "fairlead_edgecache_unconfirmed_reads_total"

// confirmedList returns the names of the newest state. The cache answers with what it has when the API server says nothing for 700 ms.
func (e *edge) confirmedList(path string) (list []string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		before := e.metric(unconfirmedReads)
		list = names(ask(e.t, e.rest(), path, values(), ""))
		return e.metric(unconfirmedReads) == before
	}, kubetest.Patience, tick, "no list was confirmed")
	return list
}
