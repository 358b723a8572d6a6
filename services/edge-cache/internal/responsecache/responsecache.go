// Package responsecache keeps answers of the API server that belong to no store: discovery, the version, single objects. They are in the journal, so
// that a controller can start while the API server does not answer.
package responsecache

import (
	"encoding/binary"
	"errors"
	"sync"

	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/store"
)

// Record is the type of records in the journal.
const Record uint16 = 6

// Limits of all documents together. Discovery of a cluster with many CRDs has about 60 groups and 1 MiB. Each form in which a client asks for it is another
// document. At half, two forms of the largest discovery do not fit; at double, a client that asks for many takes a tenth of the memory that the chart gives.
const (
	limit    = 512
	maxBytes = 16 << 20
)

// Documents are kept answers by path.
type Documents struct {
	journal store.Journal

	mu    sync.Mutex
	docs  map[string]api.Document
	bytes int
}

func size(key string, doc api.Document) int { return len(key) + len(doc.ContentType) + len(doc.Body) }

// put adds or replaces a document, if there is room. The caller has the lock.
func (d *Documents) put(key string, doc api.Document) bool {
	old, found := d.docs[key]
	bytes := d.bytes + size(key, doc)
	if found {
		bytes -= size(key, old)
	}
	if bytes > maxBytes || !found && len(d.docs) >= limit {
		return false
	}
	d.docs[key], d.bytes = doc, bytes
	return true
}

// remove removes a document, and reports whether there was one. The caller has the lock.
func (d *Documents) remove(key string) bool {
	old, found := d.docs[key]
	if found {
		delete(d.docs, key)
		d.bytes -= size(key, old)
	}
	return found
}

// New returns no documents.
func New(j store.Journal) *Documents { return &Documents{journal: j, docs: map[string]api.Document{}} }

// Load returns a document.
func (d *Documents) Load(key string) (api.Document, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	doc, found := d.docs[key]
	return doc, found
}

// Save keeps a document. Without room, the new one is not kept: those of the start of the controller are the ones that it needs again.
func (d *Documents) Save(key string, doc api.Document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, found := d.docs[key]
	if found && old.ContentType == doc.ContentType && string(old.Body) == string(doc.Body) || !d.put(key, doc) {
		return
	}
	_ = d.journal.Append(record(key, doc)) // the journal reports and heals itself
}

// Delete forgets a document.
func (d *Documents) Delete(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.remove(key) {
		return
	}
	_ = d.journal.Append(store.Record{Type: Record, Key: key})
}

func record(key string, doc api.Document) store.Record {
	value := binary.AppendUvarint(nil, uint64(len(doc.ContentType)))
	value = append(append(value, doc.ContentType...), doc.Body...)
	return store.Record{Type: Record, Key: key, Value: value}
}

// Restore adds a record of the journal.
func (d *Documents) Restore(r store.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Value == nil {
		d.remove(r.Key)
		return nil
	}
	length, n := binary.Uvarint(r.Value)
	if n <= 0 || length > uint64(len(r.Value)-n) {
		return errors.New("record of a document is malformed")
	}
	d.put(r.Key, api.Document{ContentType: string(r.Value[n : n+int(length)]), Body: r.Value[n+int(length):]})
	return nil
}

// Records calls yield for everything that the journal must hold.
func (d *Documents) Records(yield func(store.Record) error) error {
	d.mu.Lock()
	records := make([]store.Record, 0, len(d.docs))
	for key, doc := range d.docs {
		records = append(records, record(key, doc))
	}
	d.mu.Unlock()
	for _, r := range records {
		if err := yield(r); err != nil {
			return err
		}
	}
	return nil
}
