package semantics

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	istiov1 "istio.io/client-go/pkg/apis/networking/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// FromObjects makes a world of objects as they are read and written. An object of another kind, or one with a field that its
// type does not have, is an error. Namespaces are known, too.
func FromObjects(objects []*unstructured.Unstructured) (*World, error) {
	w := &World{}
	for _, u := range objects {
		if u == nil {
			return nil, fmt.Errorf("objects: there is a nil: %w", ErrInvalid)
		}
		if err := w.add(u); err != nil {
			return nil, fmt.Errorf("%s: %w", identity(u.GetKind(), u), err)
		}
	}
	if err := w.check(); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *World) add(u *unstructured.Unstructured) (err error) {
	switch u.GetAPIVersion() + " " + u.GetKind() {
	case "gateway.networking.k8s.io/v1 Gateway":
		w.Gateways, err = appendTyped[gatewayv1.Gateway](w.Gateways, u)
	case "gateway.networking.k8s.io/v1 HTTPRoute":
		w.HTTPRoutes, err = appendTyped[gatewayv1.HTTPRoute](w.HTTPRoutes, u)
	case "networking.k8s.io/v1 Ingress":
		w.Ingresses, err = appendTyped[networkingv1.Ingress](w.Ingresses, u)
	case "networking.k8s.io/v1 IngressClass":
		w.IngressClasses, err = appendTyped[networkingv1.IngressClass](w.IngressClasses, u)
	case "v1 Namespace":
		err = w.addNamespace(u)
	case "networking.istio.io/v1 VirtualService",
		"networking.istio.io/v1beta1 VirtualService",
		"networking.istio.io/v1alpha3 VirtualService":
		err = w.addVirtualService(u)
	case "traefik.io/v1alpha1 Middleware":
		w.Middlewares = append(w.Middlewares, u.DeepCopy())
	default:
		return fmt.Errorf("kind %s of %s: %w", u.GetKind(), u.GetAPIVersion(), ErrUnsupported)
	}
	return err
}

// appendTyped adds an object in its type. Fields that the type does not have are refused.
func appendTyped[T any](all []*T, u *unstructured.Unstructured) ([]*T, error) {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, object, true); err != nil {
		return nil, fmt.Errorf("convert: %w: %w", err, ErrInvalid)
	}
	return append(all, object), nil
}

func (w *World) addNamespace(u *unstructured.Unstructured) error {
	namespaces, err := appendTyped[corev1.Namespace](nil, u)
	if err != nil {
		return err
	}
	name := namespaces[0].Name
	if _, twice := w.Namespaces[name]; twice {
		return fmt.Errorf("it is there twice: %w", ErrInvalid)
	}
	if w.Namespaces == nil {
		w.Namespaces = map[string]map[string]string{}
	}
	w.Namespaces[name] = namespaces[0].Labels
	return nil
}

// addVirtualService reads the specification by itself: the JSON of Istio's types passes over fields that it does not know,
// and the status says nothing about requests.
func (w *World) addVirtualService(u *unstructured.Unstructured) error {
	rest := make(map[string]any, len(u.Object))
	for key, value := range u.Object {
		if key != "spec" && key != "status" {
			rest[key] = value
		}
	}
	all, err := appendTyped[istiov1.VirtualService](w.VirtualServices, &unstructured.Unstructured{Object: rest})
	if err != nil {
		return err
	}
	if spec, found := u.Object["spec"]; found {
		text, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("convert: %w: %w", err, ErrInvalid)
		}
		if err := protojson.Unmarshal(text, &all[len(all)-1].Spec); err != nil {
			return fmt.Errorf("convert: %w: %w", err, ErrInvalid)
		}
	}
	w.VirtualServices = all
	return nil
}
