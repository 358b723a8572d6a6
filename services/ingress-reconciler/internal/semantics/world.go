// Package semantics answers, of objects that expose services, which backend gets a request and with what path. It is what
// data planes do with HTTPRoutes, Ingresses and VirtualServices, written down apart from them: tests compare the objects of
// one plan by what they mean, and a plan can be explained.
//
// Its inputs are the objects of a World and one Request, its output an Answer or an error. It is a function of these alone,
// whatever the order of the objects is. It is strict: an object that takes part in the decision and says something that is
// not modelled, contradicts another one where no specification decides, or names what is not there, is an error and never
// passed over. Objects that cannot concern the request are not looked at.
//
// What is modelled is in the comments of gatewayapi.go, ingress.go, controller.go and virtualservice.go. In common to all:
// Services, endpoints, TLS and load balancing are not modelled, nor are headers that data planes add of their own accord.
package semantics

import (
	"errors"
	"fmt"

	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// World is the objects that decide about requests. They are not changed.
type World struct {
	Gateways        []*gatewayv1.Gateway
	HTTPRoutes      []*gatewayv1.HTTPRoute
	Namespaces      map[string]map[string]string // labels of namespaces, for listeners that select routes by them
	Ingresses       []*networkingv1.Ingress
	IngressClasses  []*networkingv1.IngressClass
	VirtualServices []*istiov1.VirtualService
	Middlewares     []*unstructured.Unstructured // Traefik's
}

// Answer says what becomes of a request. Its errors wrap those of this package.
func (w *World) Answer(r Request) (Answer, error) {
	if err := w.check(); err != nil {
		return Answer{}, err
	}
	p, err := parseRequest(&r)
	if err != nil {
		return Answer{}, fmt.Errorf("request: %w", err)
	}
	a, err := w.enter(p)
	if err != nil {
		return Answer{}, err
	}
	return a.finish(p), nil
}

func (w *World) enter(r *request) (*answer, error) {
	e := r.entrance
	byGateway, byClass, byIstio := e.Gateway != (types.NamespacedName{}), e.IngressClass != "", e.IstioGateway != ""
	switch {
	case byGateway && !byClass && !byIstio:
		return w.throughGateway(r)
	case byClass && !byGateway && !byIstio && e.Port == 0:
		return w.throughIngress(r)
	case byIstio && !byGateway && !byClass && e.Port == 0:
		return w.throughIstio(r)
	}
	return nil, fmt.Errorf("entrance %+v: it is not one Gateway, one class or one Istio gateway: %w", e, ErrInvalid)
}

// check refuses what no API server could hold.
func (w *World) check() error {
	return errors.Join(
		checkObjects("Gateway", w.Gateways),
		checkObjects("HTTPRoute", w.HTTPRoutes),
		checkObjects("Ingress", w.Ingresses),
		checkObjects("IngressClass", w.IngressClasses),
		checkObjects("VirtualService", w.VirtualServices),
		checkObjects("Middleware", w.Middlewares),
	)
}

// checkObjects refuses objects of a kind that have one name, or are none.
func checkObjects[T any, P interface {
	*T
	metav1.Object
}](kind string, all []P) error {
	seen := make(map[types.NamespacedName]bool, len(all))
	for _, o := range all {
		if o == nil {
			return fmt.Errorf("%s: there is a nil: %w", kind, ErrInvalid)
		}
		name := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
		if seen[name] {
			return fmt.Errorf("%s: it is there twice: %w", identity(kind, o), ErrInvalid)
		}
		seen[name] = true
	}
	return nil
}

// identity names an object in messages.
func identity(kind string, o metav1.Object) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}
