// Package documents keeps answers of the API server that belong to no store: discovery, the version, single objects. They are in the journal, so
// that a controller can start while the API server does not answer.
package documents

import (
	"encoding/binary"
	"errors"
	"sync"

	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/store"
)

// Record is the type of records in the journal.
const Record uint16 = 6

// limit is the number of documents. Discovery of a cluster with many CRDs has about 60 groups.
const limit = 512

// Documents are kept answers by path.
type Documents struct {
	journal store.Journal

	mu   sync.Mutex
	docs map[string]api.Document
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
	if found && old.ContentType == doc.ContentType && string(old.Body) == string(doc.Body) || !found && len(d.docs) >= limit {
		return
	}
	d.docs[key] = doc
	_ = d.journal.Append(record(key, doc)) // the journal reports and heals itself
}

// Delete forgets a document.
func (d *Documents) Delete(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, found := d.docs[key]; !found {
		return
	}
	delete(d.docs, key)
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
		delete(d.docs, r.Key)
		return nil
	}
	size, n := binary.Uvarint(r.Value)
	if n <= 0 || size > uint64(len(r.Value)-n) {
		return errors.New("record of a document is malformed")
	}
	d.docs[r.Key] = api.Document{ContentType: string(r.Value[n : n+int(size)]), Body: r.Value[n+int(size):]}
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
