package decisionapi

import (
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// wantedHeaders are the request headers to keep, by their names in lower case.
type wantedHeaders map[string]api.Control

// newWantedHeaders returns the headers for every pick, and further ones.
func newWantedHeaders(further []string) *wantedHeaders {
	w := wantedHeaders{}
	for _, name := range further {
		w[name] = api.Control{Name: name}
	}
	for _, c := range api.Controls() {
		w[c.Name] = c
	}
	return &w
}

// isWanted reports whether a header has an effect, by its name in any case.
func (w *wantedHeaders) isWanted(name string) bool {
	name = strings.ToLower(name)
	_, ok := (*w)[name]
	return ok || name == request.HeaderRequestID || name == request.HeaderTrace
}
