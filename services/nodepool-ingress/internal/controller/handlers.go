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

// RegisterHandlers registers event handlers that enqueue only the YurtIngresses that a changed object affects:
//
//	a YurtIngress                  itself, and those that list one of its pools
//	a NodePool, a Node             those that list the pool
//	an IngressClass                its owner, and those that list the pool with the class
//	another object of a pool       its owner
//	a ConfigMap with a manifest    those that name it
//	a definition of Traefik's      all
func RegisterHandlers(i *informers.Informers, classPrefix string, enqueue func(cache.ObjectName)) {
	h := handlers{informers: i, classPrefix: classPrefix}
	on := func(informer *kube.OptionalInformer, names func(any) []cache.ObjectName) {
		informer.AddEventHandler(controller.Unless(isUnchanged, controller.Handler(enqueue, names)))
	}
	on(i.YurtIngresses, ownName)
	i.YurtIngresses.AddEventHandler(controller.Unless(hasSameClaims, controller.Handler(enqueue, h.namesForContenders)))
	on(i.Nodes, h.namesForNode)
	for _, pools := range i.NodePools {
		on(pools, h.namesForNodePool)
	}
	on(i.IngressClasses, h.namesForClass)
	for _, informer := range i.Managed {
		on(informer, ownerName)
	}
	on(i.Manifests, h.namesForManifest)
	for _, definition := range i.Definitions {
		on(definition, h.allNames)
	}
}

type handlers struct {
	informers   *informers.Informers
	classPrefix string
}

func ownName(obj any) []cache.ObjectName {
	object, ok := obj.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{{Name: object.GetName()}}
}

// namesForContenders returns the YurtIngresses that list one of the pools of a YurtIngress.
func (h *handlers) namesForContenders(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if y, ok := obj.(*v1alpha1.YurtIngress); ok {
		for i := range y.Spec.Pools {
			h.addContenders(names, y.Spec.Pools[i].Name)
		}
	}
	return objectNames(names)
}

// addContenders adds the names of the YurtIngresses that list a pool.
func (h *handlers) addContenders(names sets.Set[string], pool string) {
	addNames(names, informers.ByListedPool(h.informers.YurtIngresses, pool))
}

func (h *handlers) namesForNode(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if n, ok := obj.(*informers.Node); ok {
		for pool := range maps.Values(n.Labels) {
			h.addContenders(names, pool)
		}
	}
	return objectNames(names)
}

func (h *handlers) namesForNodePool(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if pool, ok := obj.(metav1.Object); ok {
		h.addContenders(names, pool.GetName())
	}
	return objectNames(names)
}

func (h *handlers) namesForClass(obj any) []cache.ObjectName {
	names := sets.New[string]()
	for _, name := range ownerName(obj) {
		names.Insert(name.Name)
	}
	if class, ok := obj.(metav1.Object); ok {
		if pool, found := strings.CutPrefix(class.GetName(), h.classPrefix); found {
			h.addContenders(names, pool)
		}
	}
	return objectNames(names)
}

func (h *handlers) allNames(any) []cache.ObjectName {
	names := sets.New[string]()
	addNames(names, h.informers.YurtIngresses.List())
	return objectNames(names)
}

func (h *handlers) namesForManifest(obj any) []cache.ObjectName {
	names := sets.New[string]()
	if m, ok := obj.(metav1.Object); ok {
		addNames(names, informers.ByManifest(h.informers.YurtIngresses, m.GetName()))
	}
	return objectNames(names)
}

func ownerName(obj any) []cache.ObjectName {
	if ref, ok := informers.FindOwner(obj); ok {
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
	var objects []cache.ObjectName
	for _, name := range slices.Sorted(maps.Keys(names)) {
		objects = append(objects, cache.ObjectName{Name: name})
	}
	return objects
}

// hasSameClaims reports whether an update of a YurtIngress does not affect others.
func hasSameClaims(old, current any) bool {
	a, ok := old.(*v1alpha1.YurtIngress)
	return ok && equalVersions(a, current, func(a, b *v1alpha1.YurtIngress) bool {
		return a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp)
	})
}

// isUnchanged reports whether an update changes no relevant field: kubelets update their nodes every few minutes, and the program itself
// writes the status of YurtIngresses.
func isUnchanged(old, current any) bool {
	switch old := old.(type) {
	case *informers.Node:
		return equalVersions(old, current,
			func(a, b *informers.Node) bool { return a.Ready == b.Ready && reflect.DeepEqual(a.Labels, b.Labels) })
	case *v1alpha1.YurtIngress:
		return hasSameClaims(old, current) && equalVersions(old, current, func(a, b *v1alpha1.YurtIngress) bool {
			return slices.Equal(a.Finalizers, b.Finalizers) && reflect.DeepEqual(a.Status, b.Status)
		})
	case *metav1.PartialObjectMetadata: // a NodePool, of which only the existence matters
		return equalVersions(old, current, func(_, _ *metav1.PartialObjectMetadata) bool { return true })
	}
	return false
}

// equalVersions reports whether same returns true for two versions of one object.
func equalVersions[T metav1.Object](old T, current any, same func(a, b T) bool) bool {
	next, ok := current.(T)
	return ok && old.GetUID() == next.GetUID() && same(old, next)
}
