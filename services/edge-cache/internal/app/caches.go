package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/dig"
	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/endpointfilter"
	"fairlead.dev/services/edge-cache/internal/liveaddress"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/nodepool"
	"fairlead.dev/services/edge-cache/internal/projection"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// cachedResource is a store with its reflector.
type cachedResource struct {
	resource  allowlist.Resource
	namespace string
	hidden    bool // not for the controller
	store     *store.Store
	reflector *upstream.Reflector
}

// caches are all stores.
type caches struct {
	all        []*cachedResource
	byID       map[string]*store.Store
	pool       *nodepool.Pool
	references *references.Index
	adjuster   *liveaddress.Adjuster
	endpoints  projection.EndpointProjection
	nodes      *nodeChanges
	newest     *nodeFreshness
	connection *upstream.Connection
	log        *zap.Logger
	metrics    *metrics.Metrics
	fetches    chan references.Target // objects that a projection wants now
	// Of the goroutine that fetches: objects that did not exist when they were wanted, whose creation is an event, those that could not be read, and
	// references that were logged.
	absent, unreadable map[references.Target]bool
	reported           map[references.Reference]bool
}

// cacheParts are the dependencies of newCaches.
type cacheParts struct {
	dig.In

	Config     *config.Config
	Log        *zap.Logger
	Namespace  namespace
	Allow      allowlist.List
	Journal    *durableJournal
	Connection *upstream.Connection
	Metrics    *metrics.Metrics
	Pool       *nodepool.Pool
	References *references.Index
	Adjuster   *liveaddress.Adjuster
}

func newCaches(p cacheParts) *caches {
	c := &caches{
		byID: map[string]*store.Store{}, pool: p.Pool, references: p.References, adjuster: p.Adjuster, nodes: newNodeChanges(), connection: p.Connection, log: p.Log.Named("caches"),
		metrics: p.Metrics, fetches: make(chan references.Target, 1024), absent: map[references.Target]bool{}, unreadable: map[references.Target]bool{},
		endpoints: projection.EndpointProjection{Members: p.Pool, Adjuster: p.Adjuster, Unlocated: endpointfilter.Unlocated(p.Config.Pool.Unlocated), Observer: p.Metrics},
	}
	c.newest = &nodeFreshness{turnsUnready: c.endpoints.TurnsUnready, log: c.log}
	for _, r := range p.Allow.Resources {
		for _, ns := range namespacesOf(r, p) {
			c.addStore(p, r, ns)
		}
	}
	if p.Config.Pool.Membership == config.NodePool {
		r := allowlist.Resource{Group: "apps.openyurt.io", Version: p.Config.Pool.NodePoolVersion, Name: "nodepools", Custom: true, ClusterScoped: true}
		r.FieldSelector = "metadata.name=" + p.Config.Pool.Name
		c.addStore(p, r, "").hidden = true
	}
	return c
}

// namespacesOf returns the namespaces of the stores of a resource; "" is all namespaces.
func namespacesOf(r allowlist.Resource, p cacheParts) []string {
	switch {
	case r.ClusterScoped || len(p.Config.Client.Namespaces) == 0 && !r.Own:
		return []string{""}
	case r.Own:
		return []string{string(p.Namespace)}
	}
	return p.Config.Client.Namespaces
}

// addStore makes a store and its reflector.
func (c *caches) addStore(p cacheParts, r allowlist.Resource, ns string) *cachedResource {
	label := ""
	if r.Filter == allowlist.Nodes && p.Config.Pool.Membership == config.Labels {
		label = p.Config.Pool.LabelKey + "=" + p.Config.Pool.Name
	}
	params := store.Params{
		ID: storeID(r, ns, label), Journal: p.Journal, Observer: p.Metrics, Log: p.Log.Named("store"),
	}
	if r.Custom {
		params.Format = wire.JSON
	}
	c.setProjection(&params, r, p)
	s := store.New(params)
	made := &cachedResource{resource: r, namespace: ns, store: s}
	made.reflector = upstream.NewReflector(upstream.ReflectorParams{
		Connection: p.Connection, Store: s, Path: collectionPath(r, ns), Label: label, Field: r.FieldSelector, Log: p.Log.Named("reflector"),
		WaitForDependencies: c.dependencyWait(r), WaitToStore: c.freshnessWait(r),
	})
	if r.Filter == allowlist.Nodes {
		c.newest.nodes = made.reflector
	}
	c.all = append(c.all, made)
	c.byID[s.ID()] = s
	return made
}

// setProjection sets what readers see of a resource, and what follows from its changes.
func (c *caches) setProjection(params *store.Params, r allowlist.Resource, p cacheParts) {
	switch {
	case r.Filter == allowlist.EndpointSlices:
		params.Virtual, params.Projection, params.Companion = true, c.endpoints.ProjectSlice, c.adjuster
	case r.Filter == allowlist.Endpoints:
		params.Virtual, params.Projection = true, c.endpoints.ProjectEndpoints
	case r.Filter == allowlist.Secrets, r.Filter == allowlist.ConfigMaps:
		params.Virtual, params.Discard, params.Projection = true, true, projection.ReferencedObjects(c.references, r.Filter)
		params.OnRemove = func() { p.Journal.secrets.Store(true) }
	case r.Filter == allowlist.Nodes && p.Config.Pool.Membership == config.NodePool:
		params.Virtual, params.Discard, params.Projection, params.OnChange = true, true, projection.MemberNodes(c.pool), c.adjustNodes
	case r.Filter == allowlist.Nodes:
		params.OnChange = c.nodesChanged
	case r.Name == "nodepools" && r.Custom:
		params.OnChange = c.nodePoolChanged
	case namesOthers(r):
		params.OnChange = func(changed map[string][]byte) { c.referencesChanged(r, changed) }
	}
}

// namesOthers reports whether objects of a kind can name Secrets.
func namesOthers(r allowlist.Resource) bool {
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

// dependencyWait returns the function that waits for the stores on which a projection depends: without them, the first list would show nothing.
func (c *caches) dependencyWait(r allowlist.Resource) func(context.Context) error {
	var needs func(o *cachedResource) bool
	switch r.Filter {
	case allowlist.EndpointSlices, allowlist.Endpoints:
		needs = func(o *cachedResource) bool { return o.resource.Filter == allowlist.Nodes || o.hidden }
	case allowlist.Secrets, allowlist.ConfigMaps: // custom kinds may not exist
		needs = func(o *cachedResource) bool { return namesOthers(o.resource) && !o.resource.Custom }
	case allowlist.Nodes:
		needs = func(o *cachedResource) bool { return o.hidden }
	default:
		return nil
	}
	return func(ctx context.Context) error {
		for {
			if !slices.ContainsFunc(c.all, func(o *cachedResource) bool { return needs(o) && !o.store.IsSynced() }) {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

func (c *caches) servedStores() []api.ServedStore {
	var out []api.ServedStore
	for _, o := range c.all {
		if !o.hidden {
			out = append(out, api.ServedStore{Resource: o.resource, Namespace: o.namespace, Store: o.store, Confirm: o.reflector.ConfirmNewest, LastError: o.reflector.LastError})
		}
	}
	return out
}

func (c *caches) storeMetrics() []metrics.Store {
	out := make([]metrics.Store, 0, len(c.all))
	for _, o := range c.all {
		out = append(out, o.store)
	}
	return out
}

// checkSynced returns an error that names the stores that have neither listed nor restored their objects. Custom kinds may not exist.
func (c *caches) checkSynced() error {
	var missing []string
	for _, o := range c.all {
		if !o.store.IsSynced() && (!o.resource.Custom || o.hidden) {
			missing = append(missing, o.store.ID())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not listed yet: %s", strings.Join(missing, ", "))
	}
	return nil
}

func (c *caches) nodesChanged(changed map[string][]byte) {
	membership := make(map[string]bool, len(changed))
	for node, object := range changed {
		membership[node] = object != nil
	}
	c.adjustNodes(changed)
	c.pool.UpdateMembership(membership)
}

// nodePoolChanged reads the members from the status of the NodePool.
func (c *caches) nodePoolChanged(changed map[string][]byte) {
	for name, object := range changed {
		if object == nil {
			c.pool.ReplaceMembers(nil)
			continue
		}
		var nodePool struct {
			Status struct {
				Nodes []string `json:"nodes"`
			} `json:"status"`
		}
		if err := json.Unmarshal(object, &nodePool); err != nil {
			c.log.Warn("Ignored a malformed NodePool", zap.String("nodePool", name), zap.Error(err))
			continue
		}
		c.pool.ReplaceMembers(nodePool.Status.Nodes)
	}
}

// referencesChanged shows what objects of a resource name now, and hides what no object names anymore.
func (c *caches) referencesChanged(r allowlist.Resource, changed map[string][]byte) {
	for _, target := range c.references.UpdateObjects(r, changed) {
		c.forEachStore(target.Kind, func(s *store.Store) {
			if _, err := s.ReprojectKeys(target.Key); err != nil {
				c.log.Warn("Could not show an object", zap.String(string(target.Kind), target.Key), zap.Error(err))
			}
		})
		if c.references.IsWanted(target) {
			c.enqueueFetch(target)
		}
	}
}

// forEachStore calls each for the stores with a filter.
func (c *caches) forEachStore(f allowlist.Filter, each func(s *store.Store)) {
	for _, o := range c.all {
		if o.resource.Filter == f {
			each(o.store)
		}
	}
}

// reprojectNodes shows what the change of some nodes affects.
func (c *caches) reprojectNodes(nodes []string) {
	hashes := make([]uint32, len(nodes))
	for i, n := range nodes {
		hashes[i] = endpointfilter.HashNode(n)
	}
	for _, f := range []allowlist.Filter{allowlist.EndpointSlices, allowlist.Endpoints} {
		c.forEachStore(f, func(s *store.Store) {
			affected, err := s.ReprojectNodes(hashes...)
			if err != nil {
				c.log.Error("Could not filter endpoints again", zap.Error(err))
			}
			c.log.Debug("Filtered endpoints again", zap.Int("nodes", len(nodes)), zap.Int("objects", affected))
		})
	}
	c.forEachStore(allowlist.Nodes, func(s *store.Store) {
		if !s.IsVirtual() {
			return
		}
		if _, err := s.ReprojectKeys(nodes...); err != nil {
			c.log.Error("Could not filter nodes again", zap.Error(err))
		}
		for _, node := range nodes { // the store has forgotten those that were not in the pool
			if _, member := c.pool.Members()[node]; member {
				c.enqueueFetch(references.Target{Kind: allowlist.Nodes, Key: node})
			}
		}
	})
}
