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
	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
)

// RegisterHandlers registers event handlers that enqueue only the YurtIngresses that a changed object affects:
//
//	a YurtIngress                  itself, and those that list one of its pools
//	a NodePool, a Node             those that list the pool
//	an IngressClass                its owner, and those that list the pool with the class
//	another object of a pool       its owner; when it is deleted, also those that list the pool
//	a ConfigMap with a manifest    those that name it
//	a definition of Traefik's      all
func RegisterHandlers(i *informers.Informers, classPrefix string, enqueue func(cache.ObjectName)) {
	h := handlers{informers: i, classPrefix: classPrefix}
	// Of objects with metadata only, such as NodePools, the existence matters. A YurtIngress that cannot be decoded is one of them.
	existing := func(handler cache.ResourceEventHandler) cache.ResourceEventHandler {
		return controller.UnlessSame(func(_, _ *metav1.PartialObjectMetadata) bool { return true }, handler)
	}
	i.YurtIngresses.AddEventHandler(existing(controller.UnlessSame(isUnchanged, controller.NameHandler(enqueue, ownName))))
	i.YurtIngresses.AddEventHandler(controller.UnlessSame(hasSameClaims, controller.TypedHandler(enqueue, h.namesForContenders)))
	i.Nodes.AddEventHandler(controller.UnlessSame(sameNode, controller.TypedHandler(enqueue, h.namesForNode)))
	for _, pools := range i.NodePools {
		pools.AddEventHandler(existing(controller.NameHandler(enqueue, h.namesForNodePool)))
	}
	i.IngressClasses.AddEventHandler(controller.TypedHandler(enqueue, h.namesForClass))
	for _, informer := range i.Managed {
		informer.AddEventHandler(controller.Handler(enqueue, ownerName))
		informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: controller.TypedHandler(enqueue, h.namesForPoolOf).OnDelete})
	}
	i.Manifests.AddEventHandler(existing(controller.NameHandler(enqueue, h.namesForManifest)))
	for _, definition := range i.Definitions {
		definition.AddEventHandler(existing(controller.Handler(enqueue, h.allNames)))
	}
}

type handlers struct {
	informers   *informers.Informers
	classPrefix string
}

func ownName(name cache.ObjectName) []cache.ObjectName { return []cache.ObjectName{name} }

// namesForContenders returns the YurtIngresses that list one of the pools of a YurtIngress.
func (h *handlers) namesForContenders(y *v1alpha1.YurtIngress) []cache.ObjectName {
	names := sets.New[cache.ObjectName]()
	for i := range y.Spec.Pools {
		names.Insert(h.contendersOf(y.Spec.Pools[i].Name)...)
	}
	return names.UnsortedList()
}

// contendersOf returns the YurtIngresses that list a pool.
func (h *handlers) contendersOf(pool string) []cache.ObjectName {
	return namesOf(informers.ByListedPool(h.informers.YurtIngresses, pool))
}

func (h *handlers) namesForNode(n *informers.Node) []cache.ObjectName {
	names := sets.New[cache.ObjectName]()
	for pool := range maps.Values(n.Labels) {
		names.Insert(h.contendersOf(pool)...)
	}
	return names.UnsortedList()
}

func (h *handlers) namesForNodePool(pool cache.ObjectName) []cache.ObjectName {
	return h.contendersOf(pool.Name)
}

func (h *handlers) namesForClass(class metav1.Object) []cache.ObjectName {
	names := sets.New(ownerName(class)...)
	if pool, found := strings.CutPrefix(class.GetName(), h.classPrefix); found {
		names.Insert(h.contendersOf(pool)...)
	}
	return names.UnsortedList()
}

// namesForPoolOf returns those that may wait for the pool of an object: the last object can go later than the class.
func (h *handlers) namesForPoolOf(object metav1.Object) []cache.ObjectName {
	return h.contendersOf(object.GetLabels()[v1alpha1.LabelPool])
}

func (h *handlers) allNames(any) []cache.ObjectName {
	return namesOf(kit.CastObjects[metav1.Object](h.informers.YurtIngresses.List()))
}

func (h *handlers) namesForManifest(configMap cache.ObjectName) []cache.ObjectName {
	return namesOf(informers.ByManifest(h.informers.YurtIngresses, configMap.Name))
}

func ownerName(obj any) []cache.ObjectName {
	if ref, ok := informers.FindOwner(obj); ok {
		return []cache.ObjectName{{Name: ref.Name}}
	}
	return nil
}

func namesOf[T metav1.Object](objects []T) []cache.ObjectName {
	var names []cache.ObjectName
	for _, object := range objects {
		names = append(names, cache.ObjectName{Name: object.GetName()})
	}
	return names
}

// hasSameClaims reports whether an update of a YurtIngress does not affect others.
func hasSameClaims(old, current *v1alpha1.YurtIngress) bool {
	return old.Generation == current.Generation && old.DeletionTimestamp.Equal(current.DeletionTimestamp)
}

// isUnchanged reports whether an update changes no relevant field: the program itself writes the status of YurtIngresses.
func isUnchanged(old, current *v1alpha1.YurtIngress) bool {
	return hasSameClaims(old, current) && slices.Equal(old.Finalizers, current.Finalizers) && reflect.DeepEqual(old.Status, current.Status)
}

// sameNode reports whether an update changes no relevant field: kubelets update their nodes every few minutes.
func sameNode(old, current *informers.Node) bool {
	return old.Ready == current.Ready && reflect.DeepEqual(old.Labels, current.Labels)
}
