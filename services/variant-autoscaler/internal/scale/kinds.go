package scale

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// kindTime is how long an answer about a kind counts.
const kindTime = 5 * time.Minute

// Kinds finds the resources of kinds with a scale subresource. It is safe for concurrent use.
type Kinds struct {
	discovery kube.ResourceDiscovery
	now       func() time.Time

	mu    sync.Mutex
	known map[schema.GroupVersionKind]kind
}

// kind is what discovery says of a kind.
type kind struct {
	resource string // empty: it has no scale
	read     time.Time
}

// NewKinds returns Kinds that know none yet.
func NewKinds(discovery kube.ResourceDiscovery, now func() time.Time) *Kinds {
	return &Kinds{discovery: discovery, now: now, known: map[schema.GroupVersionKind]kind{}}
}

// resourceOf returns the resource of a target, or ErrNoScale.
func (k *Kinds) resourceOf(ctx context.Context, t snapshot.Target) (schema.GroupVersionResource, error) {
	gvk := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind)
	name, found := k.cachedResource(gvk)
	if !found {
		var err error
		if name, err = k.discoverScale(ctx, gvk); err != nil {
			return schema.GroupVersionResource{}, err
		}
		k.cacheResource(gvk, name)
	}
	if name == "" {
		return schema.GroupVersionResource{}, ErrNoScale
	}
	return gvk.GroupVersion().WithResource(name), nil
}

func (k *Kinds) cachedResource(gvk schema.GroupVersionKind) (resource string, found bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, found := k.known[gvk]
	return known.resource, found && !k.isOld(known)
}

// cacheResource also forgets old answers: anybody who declares variants can ask for any number of kinds.
func (k *Kinds) cacheResource(gvk schema.GroupVersionKind, resource string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.known, func(_ schema.GroupVersionKind, known kind) bool { return k.isOld(known) })
	k.known[gvk] = kind{resource: resource, read: k.now()}
}

func (k *Kinds) isOld(known kind) bool { return k.now().Sub(known.read) >= kindTime }

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
