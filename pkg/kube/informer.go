package kube

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// Resource is the part of a typed, dynamic or metadata client of one kind that an informer uses.
type Resource[L runtime.Object] interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// InformerOptions are the options of an informer. The zero value selects all objects.
type InformerOptions struct {
	// Description names the objects in messages of client-go; if empty, the type of the example does.
	Description   string
	LabelSelector string
	FieldSelector string
	Indexers      cache.Indexers
	Transform     cache.TransformFunc
}

// NewInformer returns an informer of the objects of a resource. example has their type. client is the whole client: a fake
// one reports that it cannot stream lists. Client-go's own constructors of informers include the informers of all Kubernetes
// groups, a quarter of a service's build time.
func NewInformer[L runtime.Object](client any, resource Resource[L], example runtime.Object, o InformerOptions) cache.SharedIndexInformer {
	narrow := func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = o.LabelSelector, o.FieldSelector
	}
	informer := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			narrow(&options)
			return resource.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			narrow(&options)
			return resource.Watch(ctx, options)
		},
	}, client), example, cache.SharedIndexInformerOptions{Indexers: o.Indexers, ObjectDescription: o.Description})
	if err := informer.SetTransform(o.Transform); err != nil {
		panic("informer has started: " + err.Error()) // it has not started
	}
	return informer
}
