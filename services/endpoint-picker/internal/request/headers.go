package request

import (
	"net/textproto"
	"slices"
	"sync/atomic"

	"fairlead.dev/services/endpoint-picker/internal/api"
)

const (
	// HeaderRequestID is the header with the identifier of a request.
	HeaderRequestID = "x-request-id"
	// HeaderTrace is the header of the W3C trace context.
	HeaderTrace = "traceparent"
	// HeaderDestination is the request header with the picked endpoint, for gateways. A client's own must be removed.
	HeaderDestination = "x-gateway-destination-endpoint"
	// HeaderDropped is the response header with the reason why a request was refused.
	HeaderDropped = "x-llm-d-request-dropped-reason"
	// HeaderPicked is the response header with the picked endpoint, if enabled.
	HeaderPicked = "x-fairlead-picked-endpoint"
	// HeaderServed is the response header that conformance tests of gateways read: the endpoint that served.
	HeaderServed = "x-conformance-test-served-endpoint"
	// headerEcho makes the echo server of these tests set a response header, "name:value".
	headerEcho = "x-echo-set-header"
)

// A WantedHeader is a request header that picks read.
type WantedHeader struct {
	api.Control

	Canonical string // its name in http.Header
}

// WantedHeaders are the request headers that picks read: those for every pick, and those of the configuration. All carriers share them.
// The zero value has those for every pick.
type WantedHeaders struct{ table atomic.Pointer[headerTable] }

// headerTable finds headers by their names. It skips most others by their length.
type headerTable struct {
	lengths uint64 // bit n is set if a name has n bytes
	byName  map[string]*WantedHeader
	all     []*WantedHeader // in the order in which they were added
}

// everyPick has the headers for every pick.
var everyPick = newHeaderTable(nil)

func newHeaderTable(further []string) *headerTable {
	t := &headerTable{byName: map[string]*WantedHeader{}}
	for _, c := range api.Controls() {
		t.addHeader(c)
	}
	for _, name := range further {
		t.addHeader(api.Control{Name: name})
	}
	return t
}

// addHeader adds a header, unless the table has its name.
func (t *headerTable) addHeader(c api.Control) {
	if t.byName[c.Name] != nil {
		return
	}
	h := &WantedHeader{Control: c, Canonical: textproto.CanonicalMIMEHeaderKey(c.Name)}
	t.lengths |= 1 << (len(c.Name) & 63)
	t.byName[c.Name], t.all = h, append(t.all, h)
}

// SetFurther sets the headers, in lower case, that picks read besides those for every pick.
func (w *WantedHeaders) SetFurther(names []string) { w.table.Store(newHeaderTable(names)) }

func (w *WantedHeaders) currentTable() *headerTable {
	if t := w.table.Load(); t != nil {
		return t
	}
	return everyPick
}

// FindHeader returns the header with a name in lower case, nil if picks do not read it.
func (w *WantedHeaders) FindHeader(name []byte) *WantedHeader {
	t := w.currentTable()
	if t.lengths>>(len(name)&63)&1 == 0 {
		return nil
	}
	return t.byName[string(name)]
}

// ListHeaders returns all headers. The caller must not change them.
func (w *WantedHeaders) ListHeaders() []*WantedHeader { return w.currentTable().all }

// AddHeader adds a value of a header that picks read. If the header is private, it is hidden from the model server.
func (r *IncomingHeaders) AddHeader(h *WantedHeader, value string) {
	r.Headers = append(r.Headers, api.Header{Name: h.Name, Value: value})
	if h.Private && !slices.Contains(r.Private, h.Name) {
		r.Private = append(r.Private, h.Name)
	}
}
