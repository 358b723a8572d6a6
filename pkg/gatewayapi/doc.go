// Package gatewayapi answers questions about Gateway API objects that controllers of routes and of Gateways share: which
// listener accepts a route (Attach, and its parts References, AllowsHTTPRoutes, AllowsNamespace and HostnamesIntersect),
// which of several matches wins (Precedence), and whether the controllers of a route's Gateways accepted the route (Judge).
//
// The package is pure: it only reads its input. Reasons are those of the specification and of the Gateways' controllers, if
// they exist, so that users find the same word in both places.
package gatewayapi
