// Package mirror keeps a copy of the API server's objects that the controller may read, and decides how the copies depend on each other.
//
// It creates a store with a reflector for each resource and namespace of the allow-list, and connects them:
//
//   - which store waits for which before its first list, and before each slice that would turn an endpoint unready (freshness.go)
//   - what the controller sees of a slice, a Node and a Secret (projection.go)
//   - what is projected again when the pool, a Node, a reference to a Secret, a hold or a live address changes (reproject.go, adjuster.go)
//   - which single objects are fetched, because a projection wants them now and their store has dropped them (fetch.go)
//   - what the journal holds, and in which order stores are restored from it (durable.go)
package mirror

import (
	"context"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/nodepool"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/responsecache"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// Params are the parts and the settings of a Mirror.
type Params struct {
	Resources  []allowlist.Resource
	Namespaces []string // that the controller may read; empty: all
	Namespace  string   // of the controller
	PoolConfig config.Pool

	Journal    *DurableState
	Responses  *responsecache.Cache
	Connection *upstream.Connection
	Metrics    *metrics.Metrics
	Pool       *nodepool.Pool
	References *references.Index
	Adjuster   *Adjuster
	Log        *zap.Logger
}

// Mirror is all stores with their reflectors.
type Mirror struct {
	params      Params
	log         *zap.Logger
	collections []*collection
	byID        map[string]*store.Store
	// nodes are those whose slices must be projected again. A change of a Node arrives with the lock of its store, which must not wait for
	// the lock of another store.
	nodes     *nodepool.Changes
	freshness *nodeFreshness
	fetches   chan references.Target // objects that a projection wants now
	// These belong to the goroutine that fetches: objects that did not exist when they were wanted, whose creation is an event, or that
	// could not be read; references that were logged.
	unfetched map[references.Target]references.Problem
	reported  map[references.Reference]bool
}

// collection is a resource in a namespace: its store and its reflector.
type collection struct {
	resource  allowlist.Resource
	namespace string // empty: all
	hidden    bool   // not for the controller
	store     *store.Store
	reflector *upstream.Reflector
}

// New creates the stores and reflectors. Restore fills them, and Run starts them.
func New(p Params) *Mirror {
	m := &Mirror{
		params: p, log: p.Log.Named("caches"), byID: map[string]*store.Store{}, nodes: nodepool.NewChanges(0),
		fetches: make(chan references.Target, 1024), unfetched: map[references.Target]references.Problem{},
	}
	m.freshness = &nodeFreshness{turnsUnready: m.turnsUnready, log: m.log}
	for _, r := range p.Resources {
		for _, ns := range m.namespacesOf(r) {
			m.addCollection(r, ns)
		}
	}
	if p.PoolConfig.Membership == config.NodePool {
		r := allowlist.Resource{
			Group: "apps.openyurt.io", Version: p.PoolConfig.NodePoolVersion, Name: "nodepools", Custom: true, ClusterScoped: true,
		}
		r.FieldSelector = "metadata.name=" + p.PoolConfig.Name
		m.addCollection(r, "").hidden = true
	}
	return m
}

// namespacesOf returns the namespaces of the stores of a resource; "" is all namespaces.
func (m *Mirror) namespacesOf(r allowlist.Resource) []string {
	switch {
	case r.ClusterScoped || len(m.params.Namespaces) == 0 && !r.Own:
		return []string{""}
	case r.Own:
		return []string{m.params.Namespace}
	}
	return m.params.Namespaces
}

// addCollection creates a store and its reflector.
func (m *Mirror) addCollection(r allowlist.Resource, ns string) *collection {
	p, label := m.params, ""
	if r.Filter == allowlist.Nodes && p.PoolConfig.Membership == config.Labels {
		label = p.PoolConfig.LabelKey + "=" + p.PoolConfig.Name
	}
	params := store.Params{
		ID: storeID(r, ns, label), Journal: p.Journal, Observer: p.Metrics, Log: p.Log.Named("store"),
	}
	if r.Custom {
		params.Format = wire.JSON
	}
	m.setProjection(&params, r)
	c := &collection{resource: r, namespace: ns, store: store.New(params)}
	c.reflector = upstream.NewReflector(upstream.ReflectorParams{
		Connection: p.Connection, Store: c.store, Path: collectionPath(r, ns), Label: label, Field: r.FieldSelector,
		Log: p.Log.Named("reflector"), WaitForDependencies: m.dependencyWait(r), WaitToStore: m.freshnessWait(r),
	})
	if r.Filter == allowlist.Nodes {
		m.freshness.nodes = c.reflector
	}
	m.collections = append(m.collections, c)
	m.byID[c.store.ID()] = c.store
	return c
}

// setProjection sets what readers see of a resource, and what follows from its changes.
func (m *Mirror) setProjection(params *store.Params, r allowlist.Resource) {
	switch {
	case r.Filter == allowlist.EndpointSlices:
		params.Virtual, params.Projection, params.Companion = true, m.projectSlice, m.params.Adjuster
	case r.Filter == allowlist.Endpoints:
		params.Virtual, params.Projection = true, m.projectEndpoints
	case r.Filter == allowlist.Secrets, r.Filter == allowlist.ConfigMaps:
		params.Virtual, params.Discard, params.Projection = true, true, m.projectReferenced(r.Filter)
		params.OnRemove = m.params.Journal.requestErasure
	case r.Filter == allowlist.Nodes && m.params.PoolConfig.Membership == config.NodePool:
		params.Virtual, params.Discard, params.Projection = true, true, m.projectNode
		params.OnChange = m.updateNodes
	case r.Filter == allowlist.Nodes:
		params.OnChange = m.onNodesChange
	case r.Name == "nodepools" && r.Custom:
		params.OnChange = m.onNodePoolChange
	case canReference(r):
		params.OnChange = func(changed map[string][]byte) { m.onReferencesChange(r, changed) }
	}
}

// canReference reports whether objects of a kind can name Secrets.
func canReference(r allowlist.Resource) bool {
	return r.Custom || r.Filter == allowlist.None && slices.Contains([]string{"ingresses", "services", "configmaps"}, r.Name)
}

// storeID names a store in the journal, in metrics and in logs.
func storeID(r allowlist.Resource, ns, label string) string {
	id := r.Path()
	if ns != "" {
		id += "@" + ns
	}
	if label != "" || r.FieldSelector != "" {
		id += "?" + strings.Trim(label+"&"+r.FieldSelector, "&")
	}
	return id
}

// collectionPath returns the path of a resource at the API server.
func collectionPath(r allowlist.Resource, ns string) string {
	path := "/apis/" + r.Group + "/" + r.Version
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if ns != "" {
		path += "/namespaces/" + ns
	}
	return path + "/" + r.Name
}

// dependencyWait returns the function that waits for the stores on which a projection depends: without them, the first list would show
// nothing.
func (m *Mirror) dependencyWait(r allowlist.Resource) func(context.Context) error {
	var isNeeded func(c *collection) bool
	switch r.Filter {
	case allowlist.EndpointSlices, allowlist.Endpoints:
		isNeeded = func(c *collection) bool { return c.resource.Filter == allowlist.Nodes || c.hidden }
	case allowlist.Secrets, allowlist.ConfigMaps: // custom kinds may not exist
		isNeeded = func(c *collection) bool { return canReference(c.resource) && !c.resource.Custom }
	case allowlist.Nodes:
		isNeeded = func(c *collection) bool { return c.hidden }
	default:
		return nil
	}
	return func(ctx context.Context) error {
		for _, c := range m.collections {
			if !isNeeded(c) {
				continue
			}
			if err := c.store.WaitSynced(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Restore fills the stores from the journal, and starts the journal. Nodes and Ingresses come first: the projections of the others depend
// on them.
func (m *Mirror) Restore() error {
	p, start := m.params, time.Now()
	identity, damaged, err := p.Journal.restoreState(m.byID, p.Responses)
	if err != nil {
		return err
	}
	p.Connection.SetIdentity(identity, m.onClusterChange)
	// Before FinishRestore, which issues versions: they must be in the journal.
	if err := p.Journal.Start(m.yieldState); err != nil {
		p.Log.Warn("Journal cannot write: serving from memory until it can", zap.Error(err))
	}
	inOrder := func(a, b *collection) int { return a.restoreOrder() - b.restoreOrder() }
	for _, c := range slices.SortedStableFunc(slices.Values(m.collections), inOrder) {
		if err := c.store.FinishRestore(damaged); err != nil {
			return fmt.Errorf("restore %s: %w", c.store.ID(), err)
		}
	}
	debug.FreeOSMemory() // what the replay read; the next collection could be minutes away
	p.Log.Info("Restored", zap.Int("stores", m.countSynced()), zap.Duration("took", time.Since(start)))
	return nil
}

// restoreOrder returns the place of a store at a restoration: what projections depend on comes first, then Nodes of a NodePool, then the
// others.
func (c *collection) restoreOrder() int {
	switch {
	case !c.store.IsVirtual():
		return 0
	case c.resource.Filter == allowlist.Nodes:
		return 1
	}
	return 2
}

func (m *Mirror) countSynced() int {
	n := 0
	for _, c := range m.collections {
		if c.store.IsSynced() {
			n++
		}
	}
	return n
}

// Run keeps the stores equal to the API server until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	var group sync.WaitGroup
	group.Go(func() { m.params.Pool.Run(ctx, m.reprojectNodes) })
	group.Go(func() { m.runFetches(ctx) })
	group.Go(func() { m.params.Journal.runErasures(ctx) })
	group.Go(func() { m.params.Adjuster.Run(ctx, m) })
	group.Go(func() { m.nodes.Run(ctx, m.showNodes) })
	for _, c := range m.collections {
		group.Go(func() { c.reflector.Run(ctx) })
	}
	group.Wait()
}

// onClusterChange runs before reflectors go on: the API server is of another cluster.
func (m *Mirror) onClusterChange(uid string) {
	_ = m.params.Journal.Append(identityRecord(uid)) // the journal reports and heals itself
	for _, c := range m.collections {
		if c.store.IsSynced() {
			c.store.ExpectNewHistory()
		}
	}
}

// ServedStores returns the stores for the controller.
func (m *Mirror) ServedStores() []api.ServedStore {
	var served []api.ServedStore
	for _, c := range m.collections {
		if !c.hidden {
			served = append(served, api.ServedStore{
				Resource: c.resource, Namespace: c.namespace, Store: c.store, Confirm: c.reflector.ConfirmNewest,
				LastError: c.reflector.LastError,
			})
		}
	}
	return served
}

// AllStores returns all stores, in any order.
func (m *Mirror) AllStores() []*store.Store { return slices.Collect(maps.Values(m.byID)) }

// CheckSynced returns an error that names the stores that have neither listed nor restored their objects. Custom kinds may not exist.
func (m *Mirror) CheckSynced() error {
	var missing []string
	for _, c := range m.collections {
		if !c.store.IsSynced() && (!c.resource.Custom || c.hidden) {
			missing = append(missing, c.store.ID())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
	}
	return nil
}
