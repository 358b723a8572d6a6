// Package ingressclass describes the ingress controllers that this service can configure beyond the Ingress API.
//
// A controller is one file with one Controller value, listed in the table controllers. A file defines how the controller is
// recognized, which annotations give an Ingress its timeouts, body size and buffering, how it strips a path prefix, and
// which of its annotations a tenant may set. To add a controller, add its file and its line in the table.
//
// A controller is recognized by spec.controller of the IngressClass: the author of the controller sets it, never a tenant.
// Traefik's NGINX provider answers to the value of ingress-nginx and reads the same annotations.
package ingressclass

import (
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// controllers lists the known controllers. Any other controller does no more than the Ingress API specifies.
var controllers = []*Controller{&IngressNGINX, &Traefik, &NGINX, &HAProxy, &HAProxyIngress, &Contour, &Istio}

// Controller describes an ingress controller. A nil Controller is an unknown one.
type Controller struct {
	// Name identifies the controller in messages and documentation.
	Name string
	// SpecControllers are the values of spec.controller of its IngressClasses. One that ends in "/" stands for all values
	// that begin with it.
	SpecControllers []string
	// RefusesDuplicates means that the admission webhook of the controller refuses an Ingress with the host and path of
	// another Ingress.
	RefusesDuplicates bool
	// Streaming returns the annotations for timeouts, body size and buffering. nil: the controller needs none.
	Streaming func(Streaming) map[string]string
	// StripPrefix returns the paths and annotations that remove a prefix before the backend sees the path. nil: the
	// controller cannot do this on a host that several Ingresses share.
	StripPrefix func(Prefix) Stripped
	// Safe lists the annotations that are copied from an InferenceService by default.
	Safe []SafeAnnotation
}

// SafeAnnotation is an annotation that a tenant may set. It must concern nothing but the tenant's own paths and pods, and
// its value must be a number or a word that the controller checks, so that it cannot carry configuration text.
type SafeAnnotation struct {
	Key    string
	Reason string // why it is safe
}

// Streaming is how requests and responses of an Ingress are to be passed on.
type Streaming struct {
	Timeout time.Duration // 0: none
	MaxBody int64         // bytes of a request body; 0: any
	Buffer  bool          // read whole bodies before they are passed on
}

// noTimeout stands for "no timeout" with controllers that have no word for it: a week. Half of it would still outlast any
// generation; twice as much changes nothing, as nodes and connections do not live that long.
const noTimeout = 7 * 24 * time.Hour

// timeout returns the timeout to write for a controller that needs a number.
func (s Streaming) timeout() time.Duration {
	if s.Timeout == 0 {
		return noTimeout
	}
	return s.Timeout
}

// Prefix is a path prefix that the backend must not see.
type Prefix struct {
	Namespace, Name string            // of the Ingress; a companion has the same
	Path            string            // absolute, it ends in "/"
	Annotations     map[string]string // that the Ingress has besides
}

// bare returns the path without the slash at its end.
func (p *Prefix) bare() string { return strings.TrimSuffix(p.Path, "/") }

// Stripped is what an Ingress needs to strip a prefix.
type Stripped struct {
	Paths       []networkingv1.HTTPIngressPath // without backends
	Annotations map[string]string
	Companion   *Companion // nil: nothing
}

// Companion is an object that the annotations of an Ingress refer to.
type Companion struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// path returns one path of an Ingress.
func path(kind networkingv1.PathType, text string) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: text, PathType: &kind}
}

// StripsPrefixes reports whether the controller can strip path prefixes on a host that several Ingresses share.
func (c *Controller) StripsPrefixes() bool { return c != nil && c.StripPrefix != nil }

// ComputedAnnotations returns the keys of annotations that Streaming and StripPrefix write, sorted.
func (c *Controller) ComputedAnnotations() []string {
	computed := map[string]string{}
	if c.Streaming != nil {
		maps.Copy(computed, c.Streaming(Streaming{Timeout: time.Hour, MaxBody: 1}))
	}
	if c.StripPrefix != nil {
		maps.Copy(computed, c.StripPrefix(Prefix{Path: "/a/"}).Annotations)
	}
	return slices.Sorted(maps.Keys(computed))
}

// Controllers returns all known controllers.
func Controllers() []*Controller { return slices.Clone(controllers) }

// Recognize returns the controller of a value of spec.controller, nil if it is unknown.
func Recognize(specController string) *Controller {
	for _, c := range controllers {
		if slices.ContainsFunc(c.SpecControllers, func(s string) bool {
			return specController == s || strings.HasSuffix(s, "/") && strings.HasPrefix(specController, s)
		}) {
			return c
		}
	}
	return nil
}

// Class is the IngressClass of an Ingress, as far as it is known. The zero Class is none.
type Class struct {
	Name           string      // empty: none is named, and the cluster has no default
	SpecController string      // spec.controller; empty: there is no IngressClass of that name
	Controller     *Controller // nil: unknown
}

// Resolve returns the class of that name, or with a nil name the default class of the cluster.
func Resolve(classes []*networkingv1.IngressClass, name *string) Class {
	found := find(classes, name)
	switch {
	case found != nil:
		return Class{Name: found.Name, SpecController: found.Spec.Controller, Controller: Recognize(found.Spec.Controller)}
	case name != nil:
		return Class{Name: *name}
	}
	return Class{}
}

// Of returns the class of an Ingress.
func Of(classes []*networkingv1.IngressClass, ingress *unstructured.Unstructured) Class {
	return Resolve(classes, NameOf(ingress))
}

// NameOf returns the class that an Ingress names, nil for none.
func NameOf(ingress *unstructured.Unstructured) *string {
	if name, found, err := unstructured.NestedString(ingress.Object, "spec", "ingressClassName"); found && err == nil {
		return &name
	}
	return nil
}

// Exists reports whether there is an IngressClass of the name.
func (c Class) Exists() bool { return c.SpecController != "" }

// Identity identifies the program that serves a class: two classes of one controller have the same identity. A class that
// does not exist is identified by its name.
func (c Class) Identity() string {
	if c.SpecController != "" {
		return c.SpecController
	}
	return c.Name
}

// find returns the class of that name, or with a nil name the default class: of several the newest, as the API server chooses.
func find(classes []*networkingv1.IngressClass, name *string) *networkingv1.IngressClass {
	var found *networkingv1.IngressClass
	for _, c := range classes {
		switch {
		case name != nil && c.Name == *name:
			return c
		case name != nil || c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true":
		case found == nil || newer(c, found):
			found = c
		}
	}
	return found
}

// newer reports whether the API server prefers default class a to b.
func newer(a, b *networkingv1.IngressClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}
