// Package responsecache caches answers of the API server that belong to no store: discovery, the version, single objects. They are in the
// journal, so that a controller can start while the API server does not answer.
package responsecache

import (
	"encoding/binary"
	"errors"
	"sync"

	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/store"
)

// RecordType is the type of records in the journal.
const RecordType uint16 = 6

// Limits of all responses together. Discovery of a cluster with many CRDs has about 60 groups and 1 MiB. Each form in which a client asks
// for it is another response.
const (
	maxResponses = 512
	maxBytes     = 16 << 20
)

// Cache has answers by path, query and Accept header.
type Cache struct {
	journal store.Journal

	mu        sync.Mutex
	responses map[string]api.CachedResponse
}

func responseSize(key string, doc api.CachedResponse) int {
	return len(key) + len(doc.ContentType) + len(doc.Body)
}

// putResponse adds or replaces a response, if there is room. The caller has the lock.
func (d *Cache) putResponse(key string, doc api.CachedResponse) bool {
	count, bytes := 1, responseSize(key, doc)
	for other, cached := range d.responses {
		if other != key {
			count, bytes = count+1, bytes+responseSize(other, cached)
		}
	}
	if count > maxResponses || bytes > maxBytes {
		return false
	}
	d.responses[key] = doc
	return true
}

// New returns an empty cache.
func New(j store.Journal) *Cache {
	return &Cache{journal: j, responses: map[string]api.CachedResponse{}}
}

// LoadResponse returns a response.
func (d *Cache) LoadResponse(key string) (api.CachedResponse, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, found := d.responses[key]
	return doc, found
}

// SaveResponse adds or replaces a response. Without room, it does nothing: a controller that starts again needs the responses of its first
// start.
func (d *Cache) SaveResponse(key string, doc api.CachedResponse) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, found := d.responses[key]
	if found && old.ContentType == doc.ContentType && string(old.Body) == string(doc.Body) || !d.putResponse(key, doc) {
		return
	}
	_ = d.journal.Append(responseRecord(key, doc)) // the journal reports and heals itself
}

// DeleteResponse removes a response.
func (d *Cache) DeleteResponse(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, found := d.responses[key]; !found {
		return
	}
	delete(d.responses, key)
	_ = d.journal.Append(store.Record{Type: RecordType, Key: key})
}

func responseRecord(key string, doc api.CachedResponse) store.Record {
	value := binary.AppendUvarint(nil, uint64(len(doc.ContentType)))
	value = append(append(value, doc.ContentType...), doc.Body...)
	return store.Record{Type: RecordType, Key: key, Value: value}
}

// RestoreRecord adds a record of the journal.
func (d *Cache) RestoreRecord(r store.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Value == nil {
		delete(d.responses, r.Key)
		return nil
	}
	length, n := binary.Uvarint(r.Value)
	if n <= 0 || length > uint64(len(r.Value)-n) {
		return errors.New("record of a document is malformed")
	}
	d.putResponse(r.Key, api.CachedResponse{ContentType: string(r.Value[n : n+int(length)]), Body: r.Value[n+int(length):]})
	return nil
}

// EachRecord calls yield for everything that the journal must hold.
func (d *Cache) EachRecord(yield func(store.Record) error) error {
	d.mu.Lock()
	records := make([]store.Record, 0, len(d.responses))
	for key, doc := range d.responses {
		records = append(records, responseRecord(key, doc))
	}
	d.mu.Unlock()
	for _, r := range records {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}
