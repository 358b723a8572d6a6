// Package ext replaces a module inside Traefik's repository that Traefik requires and that is not published: additions to
// the configuration of HTTP. Nothing uses a field of these structs.
package ext

// HTTP contains additions to the HTTP configuration.
type HTTP struct{}

// Router contains additions to a router.
type Router struct{}
