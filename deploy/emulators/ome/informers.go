package ome

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/controller"
	"fairlead.dev/pkg/kube"
)

// labelledKinds are those that are cleaned up, and whose changes concern the service that controls them. An Ingress of OME's
// own has no label, so nobody notices when it is changed or deleted.
var labelledKinds = []kind{services, configMaps, deployments, ingresses}

// informers are the caches: InferenceServices, and the metadata of what carries their label.
type informers struct {
	services cache.SharedIndexInformer
	labels   map[kind]cache.SharedIndexInformer
	virtual  *kube.OptionalInformer
	synced   []cache.InformerSynced
}

// clients are those of one API server.
type clients struct {
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterfaceWithContext
}

func newInformers(c clients, log *zap.Logger, enqueue func(cache.ObjectName)) (*informers, error) {
	i := &informers{
		services: dynamicinformer.NewFilteredDynamicInformer(c.dynamic, inferenceServices.GroupVersionResource, metav1.NamespaceAll, 0, cache.Indexers{}, nil).Informer(),
		labels:   map[kind]cache.SharedIndexInformer{},
	}
	newLabelled := func(k kind) cache.SharedIndexInformer {
		carries := func(o *metav1.ListOptions) { o.LabelSelector = LabelService }
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return metadatainformer.NewFilteredMetadataInformer(c.metadata, k.GroupVersionResource, metav1.NamespaceAll, 0, indexers, carries).Informer()
	}
	for _, k := range labelledKinds {
		i.labels[k] = newLabelled(k)
	}
	i.virtual = kube.NewOptionalInformer(kube.OptionalInformerParams{
		Log: log, Discovery: c.discovery, Resource: virtualServices.GroupVersionResource,
		New: func() cache.SharedIndexInformer { return newLabelled(virtualServices) },
	})
	i.virtual.AddEventHandler(controller.Handler(enqueue, controllerOf))
	i.synced = append(i.synced, i.virtual.HasSynced)
	handlers := map[cache.SharedIndexInformer]func(any) []cache.ObjectName{i.services: self}
	for _, informer := range i.labels {
		handlers[informer] = controllerOf
	}
	for informer, names := range handlers {
		registration, err := informer.AddEventHandler(controller.Handler(enqueue, names))
		if err != nil {
			return nil, fmt.Errorf("add event handler: %w", err)
		}
		i.synced = append(i.synced, registration.HasSynced)
	}
	return i, nil
}

// run keeps the caches until ctx ends.
func (i *informers) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { i.services.RunWithContext(ctx) })
	for _, informer := range i.labels {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	wg.Go(func() { i.virtual.Run(ctx) })
}

func (i *informers) hasSynced() bool {
	for _, synced := range i.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// waitForSync returns false when ctx ends before the caches are complete.
func (i *informers) waitForSync(ctx context.Context) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !i.hasSynced() {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
	}
	return true
}

func (i *informers) service(name cache.ObjectName) *unstructured.Unstructured {
	// The error is for stores whose lookups can fail; an indexer's cannot.
	object, found, _ := i.services.GetIndexer().GetByKey(name.String())
	if u, ok := object.(*unstructured.Unstructured); found && ok {
		return u
	}
	return nil
}

func (i *informers) labelled(name cache.ObjectName) map[kind][]metav1.Object {
	found := map[kind][]metav1.Object{}
	add := func(k kind, objects []any) {
		for _, object := range objects {
			if o, ok := object.(metav1.Object); ok && o.GetNamespace() == name.Namespace && o.GetLabels()[LabelService] == name.Name {
				found[k] = append(found[k], o)
			}
		}
	}
	for k, informer := range i.labels {
		objects, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, name.Namespace) // there is that index
		add(k, objects)
	}
	add(virtualServices, i.virtual.List())
	return found
}

// self is the name of an InferenceService.
func self(object any) []cache.ObjectName {
	o, ok := object.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(o)}
}

// controllerOf is the name of the InferenceService that controls an object.
func controllerOf(object any) []cache.ObjectName {
	o, ok := object.(metav1.Object)
	if !ok {
		return nil
	}
	owner := metav1.GetControllerOf(o)
	if owner == nil || owner.APIVersion != APIVersion || owner.Kind != Kind {
		return nil
	}
	return []cache.ObjectName{{Namespace: o.GetNamespace(), Name: owner.Name}}
}
