package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allow"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	fetchTimeout = 10 * time.Second
	fetchRetry   = 5 * time.Second
	maxFetched   = 2 << 20 // etcd holds at most 1.5 MiB
)

// wanted is an object that the store of its kind has forgotten, or never had.
type wanted struct {
	filter allow.Filter // Secrets, or Nodes of a NodePool
	key    string
}

// enqueueFetch asks for an object that a projection wants now. A full queue is emptied by the periodic check of all wanted objects.
func (c *caches) enqueueFetch(w wanted) {
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
			c.fetch(ctx, w)
		case <-ticker.C:
			if !c.connection.Online() {
				continue
			}
			for _, w := range c.missing() {
				c.fetch(ctx, w)
			}
		}
	}
}

// missing returns wanted objects that are not stored: those that do not exist, and those that could not be read.
func (c *caches) missing() []wanted {
	var missing []wanted
	all := c.wanted()
	c.forget(all)
	for _, w := range all {
		if o := c.find(w); o != nil && o.store.Synced() {
			if object, err := o.store.Object(w.key); err == nil && object == nil && !c.absent[w] {
				missing = append(missing, w)
			}
		}
	}
	return missing
}

// wanted returns the objects that projections want, of kinds whose stores forget all others.
func (c *caches) wanted() []wanted {
	var all []wanted
	for _, key := range c.references.All() {
		all = append(all, wanted{allow.Secrets, key})
	}
	for node := range c.pool.Members() {
		all = append(all, wanted{allow.Nodes, node})
	}
	return all
}

// forget removes from absent what is no longer wanted: tenants can name any number of Secrets, one after the other.
func (c *caches) forget(all []wanted) {
	still := make(map[wanted]bool, len(c.absent))
	for _, w := range all {
		if c.absent[w] {
			still[w] = true
		}
	}
	c.absent = still
}

// find returns the store of a wanted object, nil if that store keeps all objects.
func (c *caches) find(w wanted) *cached {
	for _, o := range c.all {
		if o.resource.Filter == w.filter && o.store.Virtual() && (o.namespace == "" || strings.HasPrefix(w.key, o.namespace+"/")) {
			return o
		}
	}
	return nil
}

func (c *caches) fetch(ctx context.Context, w wanted) {
	o := c.find(w)
	if o == nil || !o.store.Synced() {
		return // the first list has it
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	delete(c.absent, w) // it may exist by now; a failure must not hide it for ever
	err := o.store.Fetched(w.key, func() ([]byte, error) { return c.readOne(ctx, w) })
	if err != nil {
		c.log.Debug("Could not read an object that the controller should see", zap.String("kind", string(w.filter)), zap.String("key", w.key), zap.Error(err))
	}
}

func (w wanted) path() string {
	namespace, name, namespaced := strings.Cut(w.key, "/")
	if !namespaced {
		return "/api/v1/" + string(w.filter) + "/" + w.key
	}
	return "/api/v1/namespaces/" + namespace + "/" + string(w.filter) + "/" + name
}

// readOne returns the encoding of an object, nil if it does not exist: its creation will be an event.
func (c *caches) readOne(ctx context.Context, w wanted) ([]byte, error) {
	response, err := c.connection.Do(ctx, upstream.Request{
		Source: "fetch", Path: w.path(), Header: http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}},
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
		return nil, fmt.Errorf("read %s %s: %w", w.filter, w.key, err)
	}
	_, _, object, err := wire.Open(raw)
	return object, err
}
