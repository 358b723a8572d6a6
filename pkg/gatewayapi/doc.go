// Package gatewayapi answers questions about Gateway API objects that controllers of routes and of Gateways share: which
// listener takes a route (Attach, and its parts References, AllowsHTTPRoutes, AllowsNamespace and HostnamesIntersect), and
// whether the controllers of a route's Gateways accepted the route (Judge).
//
// The package is pure: it reads the objects it gets and calls nothing. Reasons are those that the specification and the
// controllers of Gateways use, where one exists, so that a user finds the same word in both places.
package gatewayapi
