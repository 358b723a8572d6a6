// Package gatewayplan plans what Gateways and HTTPRoutes want of OCI load balancers, and what their statuses say.
//
// ResolveGateways finds the Gateways of this program and their load balancers, and reads the configuration and the bindings. BuildPlan
// computes, for one load balancer and from nothing but its Input and the caches: the layout of the load balancer, its backend sets with
// their endpoints, the next record, and what is wrong with Gateways, listeners and routes. GatewayStatuses and RouteStatuses turn a plan
// and the reports of the load balancer's actor into conditions. The package writes nothing.
//
//	GatewayClass   accepted if its controllerName is one of this program's, and its parameters are valid
//	Gateway        its load balancer is that of its parameters, and the administrator's configuration permits it
//	listener       the incumbent of a port and hostname keeps it, then the older Gateway gets it
//	route          listeners decide whether it attaches; package routing decides which of its rules can be programmed
//	host           the namespace whose routes are served keeps a host and path: see claims
//
// A Gateway that was programmed, and whose class or parameters can no longer be read, is frozen: its listeners stay as they are.
package gatewayplan
