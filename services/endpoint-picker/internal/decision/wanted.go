package decision

import (
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// wanted are the request headers to keep, by their names in lower case.
type wanted map[string]api.Control

// newWanted returns the headers for every pick, and further ones.
func newWanted(further []string) *wanted {
	w := wanted{}
	for _, name := range further {
		w[name] = api.Control{Name: name}
	}
	for _, c := range api.Controls() {
		w[c.Name] = c
	}
	return &w
}

// has reports whether a header has an effect, by its name in any case.
func (w *wanted) has(name string) bool {
	name = strings.ToLower(name)
	_, ok := (*w)[name]
	return ok || name == exchange.HeaderRequestID || name == exchange.HeaderTrace
}
