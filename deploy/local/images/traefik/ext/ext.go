// Package ext stands in for a package of Traefik that its module requires and that is not published: the fields that other
// editions of Traefik add to its configuration. There are none.
package ext

// HTTP is what is added to the configuration of HTTP.
type HTTP struct{}

// Router is what is added to that of a router.
type Router struct{}
