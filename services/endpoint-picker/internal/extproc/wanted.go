package extproc

import (
	"bytes"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// wanted are the headers of requests that are kept. What else comes is most of them, and is passed over by its length.
type wanted struct {
	lengths uint64 // bit n is set if there is a name of n bytes
	names   map[string]request.Control
}

// newWanted returns the headers that every pick wants, and these.
func newWanted(further []string) *wanted {
	w := &wanted{names: map[string]request.Control{}}
	for _, name := range further {
		w.add(request.Control{Name: name})
	}
	for _, c := range request.Controls() {
		w.add(c)
	}
	return w
}

func (w *wanted) add(c request.Control) {
	w.lengths |= 1 << (len(c.Name) & 63)
	w.names[c.Name] = c
}

// find returns the header of that name, in whatever case it is written.
func (w *wanted) find(key []byte) (request.Control, bool) {
	if w.lengths>>(len(key)&63)&1 == 0 {
		return request.Control{}, false
	}
	c, ok := w.names[string(key)]
	if !ok {
		c, ok = w.names[string(bytes.ToLower(key))]
	}
	return c, ok
}
