package extproc

import "fairlead.dev/services/endpoint-picker/internal/api"

// wanted is the set of request headers to keep. It skips most other headers by their length.
type wanted struct {
	lengths uint64 // bit n is set if a name has n bytes
	names   map[string]api.Control
}

// newWanted returns the set of the headers for every pick, and further ones.
func newWanted(further []string) *wanted {
	w := &wanted{names: map[string]api.Control{}}
	for _, name := range further {
		w.add(api.Control{Name: name})
	}
	for _, c := range api.Controls() {
		w.add(c)
	}
	return w
}

func (w *wanted) add(c api.Control) {
	w.lengths |= 1 << (len(c.Name) & 63)
	w.names[c.Name] = c
}

// find returns the header with a name, in lower case.
func (w *wanted) find(key []byte) (api.Control, bool) {
	if w.lengths>>(len(key)&63)&1 == 0 {
		return api.Control{}, false
	}
	c, ok := w.names[string(key)]
	return c, ok
}
