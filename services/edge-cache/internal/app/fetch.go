package app

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	fetchTimeout = 10 * time.Second
	fetchRetry   = 5 * time.Second
	maxFetched   = 2 << 20 // etcd holds at most 1.5 MiB
)

// enqueueFetch asks for an object that a projection wants now. A full queue is emptied by the periodic check of all wanted objects.
func (c *caches) enqueueFetch(w references.Target) {
	select {
	case c.fetches <- w:
	default:
	}
}

// runFetches reads wanted objects until ctx ends. An object that could not be read is tried again with the next check.
func (c *caches) runFetches(ctx context.Context) {
	ticker := time.NewTicker(fetchRetry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-c.fetches:
			c.fetchObject(ctx, w)
		case <-ticker.C:
			if c.connection.IsOnline() {
				for _, w := range c.missingObjects() {
					c.fetchObject(ctx, w)
				}
			}
			c.reportReferences()
		}
	}
}

// missingObjects returns wanted objects that are not stored: those that do not exist, and those that could not be read.
func (c *caches) missingObjects() []references.Target {
	var missing []references.Target
	all := c.wantedObjects()
	c.forgetUnwanted(all)
	for _, w := range all {
		if !c.absent[w] && !c.isStored(w) {
			missing = append(missing, w)
		}
	}
	return missing
}

// wantedObjects returns the objects that projections want, of kinds whose stores forget all others.
func (c *caches) wantedObjects() []references.Target {
	all := c.references.WantedTargets()
	for node := range c.pool.Members() {
		all = append(all, references.Target{Kind: allowlist.Nodes, Key: node})
	}
	return all
}

// isStored reports whether the cache need not read an object: its store has it or has not listed yet, or no store is for it.
func (c *caches) isStored(w references.Target) bool {
	o := c.findStore(w)
	if o == nil || !o.store.IsSynced() {
		return true
	}
	object, err := o.store.FindObject(w.Key)
	return err != nil || object != nil
}

// referenceProblem returns why a reference leads to no object; empty if it does, or if nobody knows yet.
func (c *caches) referenceProblem(w references.Target) references.Problem {
	switch {
	case c.findStore(w) == nil:
		return references.NotCached
	case c.absent[w] && !c.isStored(w):
		return references.Missing
	case c.unreadable[w] && !c.isStored(w):
		return references.Unreadable
	}
	return ""
}

// maxReported limits the log lines of a check: a tenant can write any number of references.
const maxReported = 20

// reportReferences counts the references that do not lead to an object, and logs the new ones.
func (c *caches) reportReferences() {
	unfollowed := c.references.FindUnfollowed(c.referenceProblem)
	counts, reported := map[references.Problem]int{}, make(map[references.Reference]bool, len(unfollowed))
	lines := 0
	for _, r := range unfollowed {
		if !slices.ContainsFunc(c.all, func(o *cachedResource) bool { return o.resource.Filter == r.Target.Kind }) {
			continue // a controller that cannot list the kind does not read it
		}
		counts[r.Problem]++
		if c.reported[r] || lines < maxReported {
			reported[r] = true
		}
		if c.reported[r] || lines == maxReported {
			continue
		}
		lines++
		fields := []zap.Field{zap.String("resource", r.Resource), zap.String("object", r.Object), zap.String("field", r.Field), zap.String("problem", string(r.Problem))}
		if !r.Guessed {
			fields = append(fields, zap.String(string(r.Target.Kind), r.Target.Key))
		}
		c.log.Warn("Object names a Secret or ConfigMap that the controller does not see", fields...)
	}
	c.reported = reported
	for _, p := range references.AllProblems() {
		c.metrics.SetUnfollowedReferences(string(p), counts[p])
	}
}

// forgetUnwanted removes what is no longer wanted: tenants can name any number of Secrets, one after the other.
func (c *caches) forgetUnwanted(all []references.Target) {
	still := make(map[references.Target]bool, len(all))
	for _, w := range all {
		still[w] = true
	}
	gone := func(w references.Target, _ bool) bool { return !still[w] }
	maps.DeleteFunc(c.absent, gone)
	maps.DeleteFunc(c.unreadable, gone)
}

// findStore returns the store of a wanted object, nil if that store keeps all objects.
func (c *caches) findStore(w references.Target) *cachedResource {
	for _, o := range c.all {
		if o.resource.Filter == w.Kind && o.store.IsVirtual() && (o.namespace == "" || strings.HasPrefix(w.Key, o.namespace+"/")) {
			return o
		}
	}
	return nil
}

func (c *caches) fetchObject(ctx context.Context, w references.Target) {
	o := c.findStore(w)
	if o == nil || !o.store.IsSynced() {
		return // the first list has it
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	delete(c.absent, w) // it may exist by now; a failure must not hide it for ever
	delete(c.unreadable, w)
	err := o.store.AddFetched(w.Key, func() ([]byte, error) { return c.readObject(ctx, w) })
	if err != nil {
		c.unreadable[w] = true
		c.log.Debug("Could not read an object that the controller should see", zap.String("kind", string(w.Kind)), zap.String("key", w.Key), zap.Error(err))
	}
}

// objectPath returns the path of an object of the core group.
func objectPath(w references.Target) string {
	namespace, name, namespaced := strings.Cut(w.Key, "/")
	if !namespaced {
		return "/api/v1/" + string(w.Kind) + "/" + w.Key
	}
	return "/api/v1/namespaces/" + namespace + "/" + string(w.Kind) + "/" + name
}

// readObject returns the encoding of an object, nil if it does not exist: its creation will be an event.
func (c *caches) readObject(ctx context.Context, w references.Target) ([]byte, error) {
	response, err := c.connection.Do(ctx, upstream.Request{
		Source: "fetch", Path: objectPath(w), Header: http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}},
	})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		c.absent[w] = true
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, upstream.ReadStatus(response)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxFetched))
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", w.Kind, w.Key, err)
	}
	_, _, object, err := wire.DecodeEnvelope(raw)
	return object, err
}
