package main

import (
	"encoding/json"
	"net/http"
	"strings"

	"golang.org/x/net/websocket"
)

// echo answers with what it was asked, in the form that the suite reads.
type echo struct {
	namespace, pod, port string
}

// ServeHTTP implements http.Handler.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ws" {
		websocket.Handler(func(ws *websocket.Conn) {
			var frame string
			for websocket.Message.Receive(ws, &frame) == nil && websocket.Message.Send(ws, frame) == nil {
			}
		}).ServeHTTP(w, r)
		return
	}
	for _, value := range r.Header.Values("X-Echo-Set-Header") { // "name: value, name: value"
		for _, header := range strings.Split(value, ",") {
			if name, value, ok := strings.Cut(header, ":"); ok {
				w.Header().Add(strings.TrimSpace(name), strings.TrimSpace(value))
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"path": r.RequestURI, "host": r.Host, "method": r.Method, "proto": r.Proto, "headers": r.Header, "httpPort": e.port,
		"namespace": e.namespace, "pod": e.pod, "ingress": "", "service": "",
	})
}
