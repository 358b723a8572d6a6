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
	maxSecret    = 2 << 20 // etcd holds at most 1.5 MiB
)

// enqueueFetch asks for an object that a projection wants now. A full queue is emptied by the periodic check of all wanted objects.
func (c *caches) enqueueFetch(key string) {
	select {
	case c.fetches <- key:
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
		case key := <-c.fetches:
			c.fetch(ctx, key)
		case <-ticker.C:
			if !c.connection.Online() {
				continue
			}
			for _, key := range c.missing() {
				c.fetch(ctx, key)
			}
		}
	}
}

// missing returns wanted Secrets that are not stored: those that do not exist, and those that could not be read.
func (c *caches) missing() []string {
	var keys []string
	for _, key := range c.references.All() {
		if o := c.find(key); o != nil && o.store.Synced() {
			if object, err := o.store.Object(key); err == nil && object == nil && !c.absent[key] {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// find returns the store of a Secret.
func (c *caches) find(key string) *cached {
	for _, o := range c.all {
		if o.resource.Filter == allow.Secrets && (o.namespace == "" || len(key) > len(o.namespace) && key[:len(o.namespace)+1] == o.namespace+"/") {
			return o
		}
	}
	return nil
}

func (c *caches) fetch(ctx context.Context, key string) {
	o := c.find(key)
	if o == nil || !o.store.Synced() {
		return // the first list has it
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	err := o.store.Fetched(key, func() ([]byte, error) { return c.readSecret(ctx, key) })
	if err != nil {
		c.log.Debug("Could not read a Secret", zap.String("secret", key), zap.Error(err))
	}
}

func secretPath(key string) string {
	namespace, name, _ := strings.Cut(key, "/")
	return "/api/v1/namespaces/" + namespace + "/secrets/" + name
}

// readSecret returns the encoding of a Secret, nil if it does not exist: its creation will be an event.
func (c *caches) readSecret(ctx context.Context, key string) ([]byte, error) {
	response, err := c.connection.Do(ctx, upstream.Request{
		Source: "fetch", Path: secretPath(key), Header: http.Header{"Accept": {"application/vnd.kubernetes.protobuf"}},
	})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		c.absent[key] = true
		return nil, nil
	}
	if response.StatusCode != http.StatusOK {
		return nil, upstream.ReadStatus(response)
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxSecret))
	if err != nil {
		return nil, fmt.Errorf("read Secret: %w", err)
	}
	_, _, object, err := wire.Open(raw)
	return object, err
}
