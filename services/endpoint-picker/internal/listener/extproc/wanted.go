package extproc

import "fairlead.dev/services/endpoint-picker/internal/api"

// headerFilter is the set of request headers to keep. It skips most other headers by their length.
type headerFilter struct {
	lengths uint64 // bit n is set if a name has n bytes
	names   map[string]api.Control
}

// newHeaderFilter returns the set of the headers for every pick, and further ones.
func newHeaderFilter(further []string) *headerFilter {
	w := &headerFilter{names: map[string]api.Control{}}
	for _, name := range further {
		w.addHeader(api.Control{Name: name})
	}
	for _, c := range api.Controls() {
		w.addHeader(c)
	}
	return w
}

func (w *headerFilter) addHeader(c api.Control) {
	w.lengths |= 1 << (len(c.Name) & 63)
	w.names[c.Name] = c
}

// findHeader returns the header with a name, in lower case.
func (w *headerFilter) findHeader(key []byte) (api.Control, bool) {
	if w.lengths>>(len(key)&63)&1 == 0 {
		return api.Control{}, false
	}
	c, ok := w.names[string(key)]
	return c, ok
}
