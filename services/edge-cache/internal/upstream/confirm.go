package upstream

import (
	"context"
	"fmt"
	"time"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	// currentVersionTimeout is the longest wait for the version of the API server before a list. An API server on a dead connection must
	// not make a list slow.
	currentVersionTimeout = 700 * time.Millisecond
	// minConfirmInterval is the shortest time between two confirmations of a version: a client that writes objects in a loop must not cause
	// a list for each.
	minConfirmInterval = 200 * time.Millisecond

	metadataList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// ConfirmNewest returns nil when the store has all changes that the API server had made before the call. A list of the newest state needs
// that.
//
// The watch has no mark for "nothing happened up to this version", and versions count the changes of all resources. So, unless the store
// has reached the version of the API server, ConfirmNewest lists the metadata of the resource, and waits until the store has each object of
// it, at that version or later, and no object that is gone. Calls at the same time share one confirmation that began after all of them.
func (r *Reflector) ConfirmNewest(ctx context.Context) error {
	arrived := time.Now()
	if err := r.beginConfirmation(ctx); err != nil {
		return err
	}
	defer r.endConfirmation()
	if r.confirmed.After(arrived) {
		return nil
	}
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, currentVersionTimeout)
	defer cancel()
	current, err := r.currentVersion(limited)
	if err == nil && r.params.Store.Position() < current {
		err = r.confirmByList(ctx)
	}
	if err == nil {
		r.confirmed = start
	}
	return err
}

// ConfirmAt returns nil when the store has, and has reported, all changes that were made before a version, which may be that of an object
// of another resource in the same etcd. Many calls share a confirmation: it counts for each version up to that of the API server.
func (r *Reflector) ConfirmAt(ctx context.Context, rv uint64) error {
	if err := r.beginConfirmation(ctx); err != nil {
		return err
	}
	defer r.endConfirmation()
	if r.params.Store.Position() < rv && r.confirmedRV.Load() < rv {
		select {
		case <-time.After(time.Until(r.confirmed.Add(minConfirmInterval))):
		case <-ctx.Done():
			return ctx.Err()
		}
		start := time.Now()
		if err := r.confirmByList(ctx); err != nil {
			return err
		}
		r.confirmed = start
	}
	r.params.Store.WaitForOnChange()
	return nil
}

func (r *Reflector) beginConfirmation(ctx context.Context) error {
	select {
	case r.confirming <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *Reflector) endConfirmation() { <-r.confirming }

func (r *Reflector) confirmByList(ctx context.Context) error {
	listed, err := r.listVersions(ctx)
	if err != nil {
		return err
	}
	if r.params.Store.IsBehind(listed) && RetryAfter(r.LastError()) == 0 {
		r.retryNow.Send() // the API server answers
	}
	if err := r.params.Store.WaitForVersions(ctx, listed); err != nil {
		return fmt.Errorf("wait for events of the API server: %w", err)
	}
	r.confirmedRV.Store(listed.RV)
	return nil
}

// listVersions returns the versions of all objects at the API server now.
func (r *Reflector) listVersions(ctx context.Context) (store.Versions, error) {
	versions := store.Versions{Objects: map[string]uint64{}}
	meta, rv, err := r.readList(ctx, r.selectorQuery(), metadataList, func(item []byte) error {
		if len(versions.Objects) >= maxObjects {
			return fmt.Errorf("the API server has more than %d objects", maxObjects)
		}
		key, rv, err := wire.ParseVersion(r.params.Store.Format(), item)
		if err == nil {
			versions.Objects[key] = rv
		}
		return err
	})
	if err != nil {
		return store.Versions{}, err
	}
	versions.RV = rv
	_, err = itemKind(meta)
	return versions, err
}
