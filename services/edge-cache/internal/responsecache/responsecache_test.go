package responsecache

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/edge-cache/internal/api"
	"fairlead.dev/services/edge-cache/internal/store"
)

// records is a journal in memory.
type records []store.Record

func (r *records) Append(more ...store.Record) error {
	*r = append(*r, more...)
	return nil
}

func document(letter string, size int) api.CachedResponse {
	return api.CachedResponse{ContentType: "application/json", Body: []byte(strings.Repeat(letter, size))}
}

// storedBytes returns the size of all responses.
func storedBytes(d *Cache) int {
	total := 0
	for key, doc := range d.responses {
		total += responseSize(key, doc)
	}
	return total
}

// TestBytesAreBounded keeps the first documents, in memory and in the journal, whatever a client asks for (512 answers of 2 MiB were 1
// GiB), and restores no more than that.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	var journal records
	d := New(&journal)
	const large = 2 << 20
	x := document("x", large)
	for i := range 512 {
		d.SaveResponse(fmt.Sprint("/apis?", i), x)
	}
	assert.LessOrEqual(t, storedBytes(d), maxBytes)
	assert.Len(t, journal, maxBytes/large-1)
	_, found := d.LoadResponse("/apis?0")
	assert.True(t, found)
	_, found = d.LoadResponse("/apis?100")
	assert.False(t, found)

	d.SaveResponse("/apis?0", document("y", 1))
	d.SaveResponse("/version", document("z", large))
	_, found = d.LoadResponse("/version")
	assert.True(t, found, "a smaller answer makes room")
	d.DeleteResponse("/apis?1")
	assert.LessOrEqual(t, storedBytes(d), maxBytes-large)

	restored, r := New(&records{}), responseRecord("", x)
	for i := range 512 { // of a version without the bound
		r.Key = fmt.Sprint("/apis?", i)
		require.NoError(t, restored.RestoreRecord(r))
	}
	assert.LessOrEqual(t, storedBytes(restored), maxBytes)
	kept := 0
	require.NoError(t, restored.EachRecord(func(store.Record) error { kept++; return nil }))
	assert.Equal(t, maxBytes/large-1, kept)
}

// TestNumberIsBounded keeps no more small documents than the limit.
func TestNumberIsBounded(t *testing.T) {
	t.Parallel()
	var journal records
	d := New(&journal)
	for i := range maxResponses + 10 {
		d.SaveResponse(fmt.Sprint("/apis?", i), document("x", 1))
	}
	assert.Len(t, journal, maxResponses)
}
