package mirror

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
	"k8s.io/apimachinery/pkg/util/sets"

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
func (m *Mirror) enqueueFetch(w references.Target) {
	select {
	case m.fetches <- w:
	default:
	}
}

// runFetches reads wanted objects until ctx ends. An object that could not be read is tried again with the next check.
func (m *Mirror) runFetches(ctx context.Context) {
	ticker := time.NewTicker(fetchRetry)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-m.fetches:
			m.fetchObject(ctx, w)
		case <-ticker.C:
			if m.params.Connection.IsOnline() {
				for _, w := range m.missingObjects() {
					m.fetchObject(ctx, w)
				}
			}
			m.reportReferences()
		}
	}
}

// missingObjects returns wanted objects that are not stored: those that do not exist, and those that could not be read.
func (m *Mirror) missingObjects() []references.Target {
	wanted := m.wantedObjects()
	m.forgetUnwanted(wanted)
	return slices.DeleteFunc(wanted, func(w references.Target) bool {
		return m.unfetched[w] == references.Missing || m.isStored(w)
	})
}

// wantedObjects returns the objects that projections want, of kinds whose stores forget all others.
func (m *Mirror) wantedObjects() []references.Target {
	wanted := m.params.References.WantedTargets()
	for node := range m.params.Pool.Members() {
		wanted = append(wanted, references.Target{Kind: allowlist.Nodes, Key: node})
	}
	return wanted
}

// isStored reports whether the cache need not read an object: its store has it or has not listed yet, or no store is for it.
func (m *Mirror) isStored(w references.Target) bool {
	c := m.findCollection(w)
	if c == nil || !c.store.IsSynced() {
		return true
	}
	object, err := c.store.FindObject(w.Key)
	return err != nil || object != nil
}

// referenceProblem returns why a reference leads to no object; empty if it leads to one, or if that is not known yet.
func (m *Mirror) referenceProblem(w references.Target) references.Problem {
	switch {
	case m.findCollection(w) == nil:
		return references.NotCached
	case m.isStored(w):
		return ""
	}
	return m.unfetched[w]
}

// maxReported limits the log lines of a check: a tenant can write any number of references.
const maxReported = 20

// reportReferences counts the references that do not lead to an object, and logs the new ones.
func (m *Mirror) reportReferences() {
	unfollowed := m.params.References.FindUnfollowed(m.referenceProblem)
	counts, reported := map[references.Problem]int{}, make(map[references.Reference]bool, len(unfollowed))
	lines := 0
	for _, r := range unfollowed {
		if !slices.ContainsFunc(m.collections, func(c *collection) bool { return c.resource.Filter == r.Target.Kind }) {
			continue // a controller that cannot list the kind does not read it
		}
		counts[r.Problem]++
		if m.reported[r] || lines < maxReported {
			reported[r] = true
		}
		if m.reported[r] || lines == maxReported {
			continue
		}
		lines++
		fields := []zap.Field{
			zap.String("resource", r.Resource), zap.String("object", r.Object), zap.String("field", r.Field),
			zap.String("problem", string(r.Problem)),
		}
		if !r.Guessed {
			fields = append(fields, zap.String(string(r.Target.Kind), r.Target.Key))
		}
		m.log.Warn("Object names a Secret or ConfigMap that the controller does not see", fields...)
	}
	m.reported = reported
	for _, p := range references.AllProblems() {
		m.params.Metrics.SetUnfollowedReferences(string(p), counts[p])
	}
}

// forgetUnwanted removes what is no longer wanted: tenants can name any number of Secrets, one after the other.
func (m *Mirror) forgetUnwanted(wanted []references.Target) {
	still := sets.New(wanted...)
	maps.DeleteFunc(m.unfetched, func(w references.Target, _ references.Problem) bool { return !still.Has(w) })
}

// findCollection returns the collection of a wanted object, nil if its store keeps all objects.
func (m *Mirror) findCollection(w references.Target) *collection {
	for _, c := range m.collections {
		if c.resource.Filter == w.Kind && c.store.IsVirtual() && (c.namespace == "" || strings.HasPrefix(w.Key, c.namespace+"/")) {
			return c
		}
	}
	return nil
}

func (m *Mirror) fetchObject(ctx context.Context, w references.Target) {
	c := m.findCollection(w)
	if c == nil || !c.store.IsSynced() {
		return // the first list has it
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	delete(m.unfetched, w) // it may exist by now; a failure must not hide it for ever
	err := c.store.AddFetched(w.Key, func() ([]byte, error) { return m.readObject(ctx, w) })
	if err != nil {
		m.unfetched[w] = references.Unreadable
		m.log.Debug("Could not read an object that the controller should see",
			zap.String("kind", string(w.Kind)), zap.String("key", w.Key), zap.Error(err))
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
func (m *Mirror) readObject(ctx context.Context, w references.Target) ([]byte, error) {
	response, err := m.params.Connection.Do(ctx, upstream.Request{
		Source: "fetch", Path: objectPath(w), Header: http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}},
	})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		m.unfetched[w] = references.Missing
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
