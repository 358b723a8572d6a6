package scale

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// kindTime is how long an answer about a kind counts.
const kindTime = 5 * time.Minute

// Kinds finds the resources of kinds with a scale subresource. It is safe for concurrent use.
type Kinds struct {
	discovery kube.ResourceDiscovery
	resources *cache.Expiring // by kind; empty: it has no scale
}

// NewKinds returns Kinds that know none yet.
func NewKinds(discovery kube.ResourceDiscovery, now clock.Clock) *Kinds {
	return &Kinds{discovery: discovery, resources: cache.NewExpiringWithClock(now)}
}

// resourceOf returns the resource of a target, or ErrNoScale.
func (k *Kinds) resourceOf(ctx context.Context, t snapshot.Target) (schema.GroupVersionResource, error) {
	gvk := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
	known, found := k.resources.Get(gvk)
	name, _ := known.(string)
	if !found {
		var err error
		if name, err = k.discoverScale(ctx, gvk); err != nil {
			return schema.GroupVersionResource{}, err
		}
		k.resources.Set(gvk, name, kindTime) // forgets old answers: anybody who declares variants can ask for any number of kinds
	}
	if name == "" {
		return schema.GroupVersionResource{}, ErrNoScale
	}
	return gvk.GroupVersion().WithResource(name), nil
}

// discoverScale returns the resource of a kind with a scale subresource, empty if there is none.
func (k *Kinds) discoverScale(ctx context.Context, gvk schema.GroupVersionKind) (string, error) {
	if gvk.Version == "" || gvk.Kind == "" {
		return "", nil
	}
	list, err := k.discovery.ServerResourcesForGroupVersionWithContext(ctx, gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the kinds of %s: %w", gvk.GroupVersion(), err)
	}
	scaled := map[string]bool{}
	for i := range list.APIResources {
		if name, is := strings.CutSuffix(list.APIResources[i].Name, "/"+scaleSubresource); is {
			scaled[name] = true
		}
	}
	for i := range list.APIResources {
		if a := &list.APIResources[i]; a.Kind == gvk.Kind && a.Namespaced && scaled[a.Name] {
			return a.Name, nil
		}
	}
	return "", nil
}
