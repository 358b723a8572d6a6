package ome

import (
	"context"
	"fmt"
	"slices"
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

// labelledKinds are the built-in kinds that the emulator watches and cleans up. A change of an object causes a
// reconcile of the service that controls the object, whoever wrote it. OME's own Ingress has no label, so its changes cause no reconcile.
var labelledKinds = []kind{services, configMaps, deployments, ingresses}

// informers are the caches: InferenceServices, and the metadata of objects of other kinds.
type informers struct {
	services cache.SharedIndexInformer
	labels   map[kind]cache.SharedIndexInformer
	optional map[kind]*kube.OptionalInformer // kinds whose CRD may be absent
	replicas *kube.OptionalInformer          // release 1.3: InferenceReplicas of users have no label
	synced   []cache.InformerSynced
}

// clients are the clients of one API server.
type clients struct {
	dynamic   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterfaceWithContext
}

func newInformers(c clients, r Release, log *zap.Logger, enqueue func(cache.ObjectName)) (*informers, error) {
	i := &informers{
		services: dynamicinformer.NewFilteredDynamicInformer(c.dynamic, inferenceServices.GroupVersionResource, metav1.NamespaceAll, 0,
			cache.Indexers{}, nil).Informer(),
		labels:   map[kind]cache.SharedIndexInformer{},
		optional: map[kind]*kube.OptionalInformer{},
	}
	newLabelled := func(k kind) cache.SharedIndexInformer {
		carries := func(o *metav1.ListOptions) {
			if k == ingresses { // OME reconciles a service when another object changes that the service controls
				o.LabelSelector = LabelService
			}
		}
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return metadatainformer.NewFilteredMetadataInformer(c.metadata, k.GroupVersionResource, metav1.NamespaceAll, 0, indexers,
			carries).Informer()
	}
	for _, k := range labelledKinds {
		i.labels[k] = newLabelled(k)
	}
	newOptional := func(k kind, of func() cache.SharedIndexInformer, names func(any) []cache.ObjectName) *kube.OptionalInformer {
		informer := kube.NewOptionalInformer(kube.OptionalInformerParams{
			Log: log, Discovery: c.discovery, Resource: k.GroupVersionResource, New: of,
		})
		informer.AddEventHandler(controller.Handler(enqueue, names))
		i.synced = append(i.synced, informer.HasSynced)
		return informer
	}
	optional := []kind{virtualServices}
	if r == Release12 {
		optional = append(optional, knativeServices)
	} else {
		optional = append(optional, replicas)
		i.replicas = newOptional(replicas, func() cache.SharedIndexInformer {
			return metadatainformer.NewFilteredMetadataInformer(c.metadata, replicas.GroupVersionResource, metav1.NamespaceAll, 0,
				cache.Indexers{}, nil).Informer()
		}, i.referencing)
	}
	for _, k := range optional {
		i.optional[k] = newOptional(k, func() cache.SharedIndexInformer { return newLabelled(k) }, controllerOf)
	}
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

// run updates the caches until ctx ends.
func (i *informers) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { i.services.RunWithContext(ctx) })
	for _, informer := range i.labels {
		wg.Go(func() { informer.RunWithContext(ctx) })
	}
	for _, informer := range i.optional {
		wg.Go(func() { informer.Run(ctx) })
	}
	if i.replicas != nil {
		wg.Go(func() { i.replicas.Run(ctx) })
	}
}

func (i *informers) hasSynced() bool {
	for _, synced := range i.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// waitForSync returns false if ctx ends before the caches are complete.
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
	// GetByKey of an indexer never returns an error.
	object, found, _ := i.services.GetIndexer().GetByKey(name.String())
	if u, ok := object.(*unstructured.Unstructured); found && ok {
		return u
	}
	return nil
}

func (i *informers) serves(k kind) bool { return i.optional[k] != nil && i.optional[k].Listed() }

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
		objects, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, name.Namespace) // the index exists
		add(k, objects)
	}
	for k, informer := range i.optional {
		add(k, informer.List())
	}
	return found
}

// referencing returns the names of the services whose spec.replicaRefs name an InferenceReplica of a user.
func (i *informers) referencing(object any) []cache.ObjectName {
	replica, ok := object.(metav1.Object)
	if !ok || metav1.GetControllerOf(replica) != nil {
		return nil
	}
	var names []cache.ObjectName
	for _, o := range i.services.GetStore().List() {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || u.GetNamespace() != replica.GetNamespace() {
			continue
		}
		s, err := decode(u, Release13)
		if err == nil && slices.ContainsFunc(roles, func(r Role) bool { return s.referenced(r) == replica.GetName() }) {
			names = append(names, nameOf(s))
		}
	}
	return names
}

// self returns the name of an InferenceService.
func self(object any) []cache.ObjectName {
	o, ok := object.(metav1.Object)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(o)}
}

// controllerOf returns the name of the InferenceService that controls an object.
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
