//go:build system

package flow

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

func TestInformersEqualTheOracle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("in-2", "edge")
	w.node("out-1", "other")
	w.createSlice(slice("default", "a", "a-1", "in-1", "out-1", "in-2", ""))
	w.createSlice(slice("default", "b", "b-1", "out-1"))
	e := w.edge("edge").ready()
	for _, k := range clientKinds() {
		for _, watchList := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, watch-list %t", k.name, watchList), func(t *testing.T) {
				lw := k.make(t, e.rest())
				var i cache.SharedIndexInformer
				if watchList {
					i = e.informer(k, lw)
				} else {
					i = e.informer(k, plainList{lw})
				}
				synced(t, i)
				e.converges(i)
			})
		}
	}
	t.Run("after changes", func(t *testing.T) {
		var all []cache.SharedIndexInformer
		for _, k := range clientKinds() {
			all = append(all, e.informer(k, k.make(t, e.rest())))
		}
		for _, i := range all {
			synced(t, i)
		}
		w.createSlice(slice("default", "c", "c-1", "in-2", "out-1"))
		w.label("in-2", "other")
		w.label("out-1", "edge")
		require.NoError(t, w.direct.DiscoveryV1().EndpointSlices("default").Delete(t.Context(), "b-1", metav1.DeleteOptions{}))
		for _, i := range all {
			e.converges(i)
		}
	})
}

func TestOfflineRestartServesWhatWasSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("in-1", "edge")
	w.node("out-1", "other")
	w.createSlice(slice("default", "a", "a-1", "in-1", "out-1"))
	e := w.edge("edge").ready()
	want := e.oracle("edge")
	online := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, online)
	e.converges(online)

	w.network.set(linkCut)
	e.restart()
	e.ready()
	for _, k := range clientKinds() {
		lw := k.make(t, e.rest())
		for _, i := range []cache.SharedIndexInformer{e.informer(k, lw), e.informer(k, plainList{lw})} {
			synced(t, i)
			got := addresses(t, i.GetStore().List())
			assert.Len(t, got, len(want))
			if k.name != "metadata" {
				assert.Equal(t, want, got)
			}
		}
	}
	w.createSlice(slice("default", "b", "b-1", "in-1"))
	w.network.set(linkUp)
	i := e.informer(clientKinds()[0], clientKinds()[0].make(t, e.rest()))
	synced(t, i)
	e.converges(i)
	e.converges(online)
}
