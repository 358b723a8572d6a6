// Package ext stands in for a module inside Traefik's repository that Traefik requires and that is not published: what is
// added to the configuration of HTTP. Nothing uses a field of these structs.
package ext

// HTTP is what is added to the whole.
type HTTP struct{}

// Router is what is added to a router.
type Router struct{}
