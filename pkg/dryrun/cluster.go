package dryrun

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/pkg/informers"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// ReadCluster lists the objects of kinds that are not off, and ConfigMaps by their names. It only lists, like informers, so
// a command in the pod of a service needs no further permissions. A kind counts as not served if the cluster does not have
// it, or if this user may not list it; the latter causes a message, or an error for a Required kind. ReadCluster skips
// ConfigMaps with an empty name.
func ReadCluster(ctx context.Context, client dynamic.Interface, kinds []informers.Kind, names ...cache.ObjectName) (*World, error) {
	served := map[schema.GroupVersionResource]bool{}
	w := &World{}
	w.Served = func(resource schema.GroupVersionResource) bool { return served[resource] }
	read := map[string]bool{} // two kinds may keep different parts of the same objects
	for _, k := range kinds {
		selection := strings.Join([]string{k.Resource.String(), k.Namespace, k.Selector, k.Fields}, " ")
		if k.Off || read[selection] {
			continue
		}
		read[selection] = true
		listed, err := w.listResource(ctx, k.In(client), metav1.ListOptions{LabelSelector: k.Selector, FieldSelector: k.Fields})
		switch {
		case err == nil:
			served[k.Resource] = served[k.Resource] || listed
		case apierrors.IsForbidden(err) && !k.Required:
			w.recordSkipped("%s: skipped, because this user may not list them; the plan treats the kind as not available", k.Resource.GroupResource())
		default:
			return nil, fmt.Errorf("list %s: %w", k.Resource.GroupResource(), err)
		}
	}
	for _, name := range names {
		if name.Name == "" {
			continue
		}
		// A GET would need another permission than the list of an informer.
		selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
		if _, err := w.listResource(ctx, client.Resource(configMaps).Namespace(name.Namespace),
			metav1.ListOptions{FieldSelector: selector}); err != nil {
			return nil, fmt.Errorf("list ConfigMap %s: %w", name, err)
		}
	}
	return w, nil
}

// List lists all objects of resources that a label selector matches; an empty one matches all. It skips resources that the
// cluster does not have, and, with a message, those that this user may not list.
func List(ctx context.Context, client dynamic.Interface, resources []schema.GroupVersionResource, selector string) (*World, error) {
	w := &World{}
	for _, resource := range resources {
		switch _, err := w.listResource(ctx, client.Resource(resource), metav1.ListOptions{LabelSelector: selector}); {
		case err == nil:
		case apierrors.IsForbidden(err):
			w.recordSkipped("%s: skipped, because this user may not list them", resource.GroupResource())
		default:
			return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
		}
	}
	return w, nil
}

// listResource adds the objects of a list, and reports false if the cluster does not have their kind.
func (w *World) listResource(ctx context.Context, from dynamic.ResourceInterface, options metav1.ListOptions) (bool, error) {
	list, err := from.List(ctx, options)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	}
	for i := range list.Items {
		w.Objects = append(w.Objects, &list.Items[i])
	}
	return true, nil
}
