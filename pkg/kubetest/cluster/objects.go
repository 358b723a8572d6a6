package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// deleteTimeout limits the time until the objects of a test are gone. Kubernetes looks at a namespace again after half of the longest grace
// period of its pods, and the proxies of Envoy Gateway have six minutes.
const deleteTimeout = 7 * time.Minute

// finalizerTimeout limits the time for which a deleted object waits for its finalizers. Their controller can be a program of the test,
// which is deleted, too: Envoy Gateway leaves its finalizer on a GatewayClass, and then the CRD remains. A controller that runs needs
// seconds.
const finalizerTimeout = 30 * time.Second

// object identifies an object of any kind.
type object struct {
	resource   schema.GroupVersionResource
	name       types.NamespacedName
	uid        types.UID
	owned      bool         // by another object: the garbage collector deletes it
	deleted    *metav1.Time // nil if it is not deleted
	finalizers []string
}

// isStuck reports whether a deleted object has waited for its finalizers for a time. A CRD waits for its objects.
func (o *object) isStuck(timeout time.Duration) bool {
	return o.deleted != nil && len(o.finalizers) > 0 && time.Since(o.deleted.Time) > timeout &&
		o.resource.Resource != "customresourcedefinitions"
}

// isTransient reports whether the objects of a resource appear and disappear on their own.
func isTransient(r schema.GroupResource) bool {
	return r.Resource == "events" || r.Group == "metrics.k8s.io" ||
		r == schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
}

// listObjects returns the objects of all kinds that can be listed and deleted.
func listObjects(ctx context.Context, config *rest.Config) ([]object, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := disco.ServerPreferredResources()
	if len(lists) == 0 {
		return nil, err // discovery of some groups can fail; lists has the others
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists)
	resources, err := discovery.GroupVersionResources(lists)
	if err != nil {
		return nil, err
	}
	var all []object
	for r := range resources {
		if isTransient(r.GroupResource()) {
			continue
		}
		found, err := client.Resource(r).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // its CRD was deleted in the meantime
		}
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		for i := range found.Items {
			m := &found.Items[i]
			all = append(all, object{
				resource: r, name: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}, uid: m.UID,
				owned: len(m.OwnerReferences) > 0, deleted: m.DeletionTimestamp, finalizers: m.Finalizers,
			})
		}
	}
	return all, nil
}

// deleteOthers deletes all objects that are not among those given, and waits until they are gone. It removes the finalizers of objects that
// have waited for them longer than finalizerTimeout.
func deleteOthers(ctx context.Context, config *rest.Config, keep []object, finalizerTimeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	kept := sets.New[types.UID]()
	for _, o := range keep {
		kept.Insert(o.uid)
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		all, err := listObjects(ctx, config)
		if err != nil {
			return err
		}
		others := slices.DeleteFunc(all, func(o object) bool { return kept.Has(o.uid) || isRecreated(o) })
		if len(others) == 0 {
			return nil
		}
		for _, o := range others {
			if o.isStuck(finalizerTimeout) {
				err = removeFinalizers(ctx, client, o)
			} else {
				err = removeObject(ctx, client, o)
			}
			if err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d objects remain, among them %s %s: %w", len(others), others[0].resource.GroupResource(), others[0].name, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// removeObject deletes an object, unless the garbage collector deletes it.
func removeObject(ctx context.Context, client metadata.Interface, o object) error {
	if o.owned {
		return nil
	}
	background := metav1.DeletePropagationBackground
	err := client.Resource(o.resource).Namespace(o.name.Namespace).Delete(ctx, o.name.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &o.uid}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s %s: %w", o.resource.GroupResource(), o.name, err)
	}
	return nil
}

// removeFinalizers removes the finalizers of an object.
func removeFinalizers(ctx context.Context, client metadata.Interface, o object) error {
	patch := fmt.Appendf(nil, `{"metadata": {"uid": %q, "finalizers": null}}`, o.uid)
	_, err := client.Resource(o.resource).Namespace(o.name.Namespace).Patch(ctx, o.name.Name, types.MergePatchType, patch,
		metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove finalizers of %s %s: %w", o.resource.GroupResource(), o.name, err)
	}
	return nil
}

// isRecreated reports whether the cluster recreates an object after its deletion.
func isRecreated(o object) bool {
	switch o.resource.Resource {
	case "serviceaccounts":
		return o.name.Name == "default"
	case "configmaps":
		return o.name.Name == "kube-root-ca.crt" || o.name.Name == "istio-ca-root-cert"
	case "nodes", "csinodes", "endpoints":
		return true
	}
	return false
}
