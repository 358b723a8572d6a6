package bindings

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/backendset-syncer/internal/informers"
	"fairlead.dev/services/backendset-syncer/internal/lbrecord"
)

// handlers are the event handlers of a kind, whose objects are those of a snapshot.
type handlers struct {
	kit.Informer

	all []cache.ResourceEventHandler
}

func (h *handlers) AddEventHandler(handler cache.ResourceEventHandler) {
	h.all = append(h.all, handler)
}

// TestWhoIsWoken has three bindings in a namespace with a limit of two, and one elsewhere.
func TestWhoIsWoken(t *testing.T) {
	t.Parallel()
	owner, second, third := bindingOf("owner", 3, held(1)), bindingOf("second", 2), bindingOf("third", 1)
	second.Spec.BackendSetName, third.Spec.BackendSetName = "embed", "rank"
	gone := bindingOf("gone", 4)
	gone.Spec.BackendSetName = "old"
	elsewhere := bindingOf("elsewhere", 1)
	elsewhere.Namespace, elsewhere.Spec.BackendSetName = "others", "other"
	w := &world{t: t, binding: owner, rivals: []*v1alpha1.BackendSetBinding{second, third, elsewhere}}
	caches := w.caches()
	bindings, configMaps := &handlers{Informer: caches.Bindings}, &handlers{Informer: caches.ConfigMaps}
	caches.Bindings, caches.ConfigMaps = bindings, configMaps
	var woken []string
	r := New(Params{Caches: caches, Records: "fairlead", Configuration: configured(t, permits+"\nnamespaces: {models: {bindings: 2}}")})
	AddHandlers(&informers.Informers{Caches: caches}, r,
		func(name cache.ObjectName) { woken = append(woken, name.Name) })
	requireWoken := func(what string, tell func(cache.ResourceEventHandler), from *handlers, names ...string) {
		t.Helper()
		woken = nil
		for _, h := range from.all {
			tell(h)
		}
		assert.ElementsMatch(t, names, slices.Compact(slices.Sorted(slices.Values(woken))), what)
	}

	requireWoken("another one ends", func(h cache.ResourceEventHandler) {
		h.OnDelete(cache.DeletedFinalStateUnknown{Obj: gone})
	}, bindings, "gone", "owner", "second")
	lost := owner.DeepCopy()
	lost.Status.HeldSince, lost.ResourceVersion = nil, "9"
	requireWoken("it owns its set no longer", func(h cache.ResourceEventHandler) { h.OnUpdate(owner, lost) }, bindings,
		"owner", "second")
	requireWoken("it owns its set now", func(h cache.ResourceEventHandler) { h.OnUpdate(lost, owner) }, bindings, "owner")
	requireWoken("it begins", func(h cache.ResourceEventHandler) { h.OnAdd(owner, false) }, bindings, "owner")

	record := &lbrecord.Record{LoadBalancer: lb, Objects: []lbrecord.Object{
		{Kind: lbrecord.BackendSet, Name: "embed", Key: "a"}, {Kind: lbrecord.Listener, Name: "rank", Key: "b"},
	}}
	c := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "fairlead", Name: lbrecord.ConfigMapName(lb), Labels: map[string]string{lbrecord.Label: lbrecord.LabelRecord},
		},
		Data: map[string]string{"record": record.Encode()},
	}
	requireWoken("its set is no longer that of Gateways", func(h cache.ResourceEventHandler) { h.OnDelete(c) }, configMaps, "second")
	c.Namespace = "others"
	requireWoken("anybody's ConfigMap", func(h cache.ResourceEventHandler) { h.OnDelete(c) }, configMaps)
}
