package controller

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
)

// Handle registers event handlers that enqueue only the YurtIngresses that a changed object affects:
//
//	a YurtIngress                  itself, and those that list one of its pools
//	a NodePool, a Node             those that list the pool
//	an IngressClass                its owner, and those that list the pool with the class
//	another object of a pool       its owner
//	a ConfigMap with a manifest    those that name it
//	a definition of Traefik's      all
func Handle(i *informers.Informers, classPrefix string, enqueue func(cache.ObjectName)) {
	h := handlers{informers: i, classPrefix: classPrefix}
	on := func(informer *kube.OptionalInformer, names func(any) []cache.ObjectName) {
		informer.AddEventHandler(controller.Unless(unchanged, controller.Handler(enqueue, names)))
	}
	on(i.YurtIngresses, itself)
	i.YurtIngresses.AddEventHandler(controller.Unless(sameClaims, controller.Handler(enqueue, h.contenders)))
	on(i.Nodes, h.node)
	for _, pools := range i.NodePools {
		on(pools, h.nodePool)
	}
	on(i.IngressClasses, h.class)
	for _, informer := range i.Managed {
		on(informer, owner)
	}
	on(i.Manifests, h.manifest)
	for _, definition := range i.Definitions {
		on(definition, h.all)
	}
}

type handlers struct {
	informers   *informers.Informers
	classPrefix string
}

func itself(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{{Name: object.GetName()}}
}

// contenders returns the YurtIngresses that list one of the pools of a YurtIngress.
func (h *handlers) contenders(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if y, ok := obj.(*v1alpha1.YurtIngress); ok {
		for i := range y.Spec.Pools {
			h.listing(names, y.Spec.Pools[i].Name)
		}
	}
	return objectNames(names)
}

// listing adds the names of the YurtIngresses that list a pool.
func (h *handlers) listing(names sets.Set[string], pool string) {
	addNames(names, informers.Listing(h.informers.YurtIngresses, pool))
}

func (h *handlers) node(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if n, ok := obj.(*informers.Node); ok {
		for pool := range maps.Values(n.Labels) {
			h.listing(names, pool)
		}
	}
	return objectNames(names)
}

func (h *handlers) nodePool(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if pool, ok := obj.(metav1.Object); ok {
		h.listing(names, pool.GetName())
	}
	return objectNames(names)
}

func (h *handlers) class(obj any) []cache.ObjectName {
	names := sets.New[string]()
	for _, name := range owner(obj) {
		names.Insert(name.Name)
	}
	if class, ok := obj.(metav1.Object); ok {
		if pool, found := strings.CutPrefix(class.GetName(), h.classPrefix); found {
			h.listing(names, pool)
		}
	}
	return objectNames(names)
}

func (h *handlers) all(any) []cache.ObjectName {
	names := sets.New[string]()
	addNames(names, h.informers.YurtIngresses.List())
	return objectNames(names)
}

func (h *handlers) manifest(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if m, ok := obj.(metav1.Object); ok {
		addNames(names, informers.Naming(h.informers.YurtIngresses, m.GetName()))
	}
	return objectNames(names)
}

func owner(obj any) []cache.ObjectName {
	if ref, ok := informers.Owner(obj); ok {
		return []cache.ObjectName{{Name: ref.Name}}
	}
	return nil
}

func addNames(names sets.Set[string], objects []any) {
	for _, obj := range objects {
		if object, ok := obj.(metav1.Object); ok {
			names.Insert(object.GetName())
		}
	}
}

func objectNames(names sets.Set[string]) []cache.ObjectName {
	var all []cache.ObjectName
	for _, name := range slices.Sorted(maps.Keys(names)) {
		all = append(all, cache.ObjectName{Name: name})
	}
	return all
}

// sameClaims reports whether an update of a YurtIngress does not affect others.
func sameClaims(old, current any) bool {
	a, ok := old.(*v1alpha1.YurtIngress)
	return ok && alike(a, current, func(a, b *v1alpha1.YurtIngress) bool {
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
	})
}

// unchanged reports whether an update changes no relevant field: kubelets update their nodes every few minutes, and the program itself writes
// the status of YurtIngresses.
func unchanged(old, current any) bool {
	switch old := old.(type) {
	case *informers.Node:
		return alike(old, current, func(a, b *informers.Node) bool { return a.Ready == b.Ready && reflect.DeepEqual(a.Labels, b.Labels) })
	case *v1alpha1.YurtIngress:
		return sameClaims(old, current) && alike(old, current, func(a, b *v1alpha1.YurtIngress) bool {
			return slices.Equal(a.Finalizers, b.Finalizers) && reflect.DeepEqual(a.Status, b.Status)
		})
	case *metav1.PartialObjectMetadata: // a NodePool, of which only the existence matters
		return alike(old, current, func(_, _ *metav1.PartialObjectMetadata) bool { return true })
	}
	return false
}

// alike reports whether same returns true for two versions of one object.
func alike[T metav1.Object](old T, current any, same func(a, b T) bool) bool {
	next, ok := current.(T)
	return ok && old.GetUID() == next.GetUID() && same(old, next)
}
