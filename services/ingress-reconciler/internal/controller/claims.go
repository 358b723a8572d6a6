package controller

import (
	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/ingress-reconciler/internal/observe"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
	"fairlead.dev/services/ingress-reconciler/internal/settings"
)

// AllClaims returns the claims of all services. A deleted service has claims while its routes exist.
func AllClaims(observer *observe.Observer, config settings.Config) map[ownership.Owner]ownership.Claims {
	claims := map[ownership.Owner]ownership.Claims{}
	for _, name := range observer.ServiceNames() {
		if o, found := observer.ObserveAny(name, config); found {
			p := plan.Build(&o.Input)
			claims[ownership.Owner(name)] = ownership.Claims{
				Created: o.Input.Service.Created, Asks: p.RequestedClaims(observer.LiveClaims(name)),
			}
		}
	}
	for _, name := range observer.OwnerNames() {
		if _, found := claims[ownership.Owner(name)]; !found {
			claims[ownership.Owner(name)] = ownership.Claims{Asks: observer.LiveClaims(name)}
		}
	}
	return claims
}
