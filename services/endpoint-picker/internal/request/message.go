package request

import (
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// IncomingHeaders are the parts of a request's headers that the picker needs.
type IncomingHeaders struct {
	Subset      *scheduling.Subset
	Path        string // including the query
	ID          string
	TraceParent string
	Headers     api.Headers // the ones that picks need
	Private     []string    // names of headers to hide from the model server
}

// ResponseHeaders are the parts of a response's headers that the picker needs.
type ResponseHeaders struct {
	Status             int
	Served             string // the endpoint that served, if the gateway reports it
	Events             bool   // the body is a stream of events
	HTML               bool   // the body is HTML
	Encoded            bool   // the body is compressed
	UnacceptedEncoding bool   // it is, and the request did not accept that
	Bytes              bool   // the body is no text
	Hidden             bool   // the carrier does not show the body

	Unanswered bool // it is the carrier's, because no server answered
}

// SetContentType records the type of the body.
func (r *ResponseHeaders) SetContentType(value string) {
	name, _, _ := strings.Cut(value, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	switch kind, _, _ := strings.Cut(name, "/"); kind {
	case "audio", "image", "video":
		r.Bytes = true
	}
	switch name {
	case "application/octet-stream":
		r.Bytes = true
	case "text/event-stream":
		r.Events = true
	case "text/html", "application/xhtml+xml":
		r.HTML = true
	}
}
