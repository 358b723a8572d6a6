// Package ingressclass describes the ingress controllers that this service can configure beyond the Ingress API.
//
// Each controller has a file with one Controller value. The file defines how to recognize the controller, which annotations
// configure timeouts, body size and buffering, how the controller strips a path prefix, and which of its annotations a tenant may
// set. To add a controller, add a file and an entry in the variable controllers.
//
// The package recognizes a controller by spec.controller of the IngressClass. The author of the controller chooses this value, and a
// tenant cannot change it. Traefik's NGINX provider uses the same value as ingress-nginx, and reads the same annotations.
package ingressclass

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	openyurt "fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// controllers lists the known controllers. For any other controller, only the features of the Ingress API are used.
var controllers = []*Controller{&IngressNGINX, &Traefik, &NGINX, &HAProxy, &HAProxyIngress, &Contour, &Istio}

// Controller describes an ingress controller. A nil Controller is an unknown controller.
type Controller struct {
	// Name identifies the controller in messages and documentation.
	Name string
	// SpecControllers are the values of spec.controller in IngressClasses of the controller. A value that ends in "/" matches
	// all values with this prefix.
	SpecControllers []string
	// RefusesDuplicates means that the admission webhook of the controller rejects an Ingress with the host and path of
	// another Ingress.
	RefusesDuplicates bool
	// Streaming returns the annotations for timeouts, body size and buffering. nil: the controller does not need annotations.
	Streaming func(Streaming) map[string]string
	// GRPC returns the annotations for a Service that speaks only gRPC. nil: annotations of the Ingress cannot choose the protocol.
	GRPC func(service string) map[string]string
	// StripPrefix returns the paths and annotations that remove a prefix from the path of requests. nil: the controller cannot
	// remove a prefix on a host that several Ingresses share.
	StripPrefix func(Prefix) Stripped
	// YieldRoot changes a path "/" and annotations so that the webhook admits another Ingress with this path. The Ingress still
	// answers all requests for the host. nil: no webhook refuses the other Ingress.
	YieldRoot func(path map[string]any, annotations map[string]string)
	// Reads is the group and version of the custom resources that StripPrefix needs the controller to read. Empty: none.
	Reads string
	// MatchesHost means that StripPrefix changes how the controller matches the paths of all Ingresses of the host.
	MatchesHost bool
	// Safe lists the annotations that are copied from an InferenceService by default.
	Safe []SafeAnnotation
}

// SafeAnnotation is an annotation that a tenant may set. It must affect only the tenant's own paths and pods. The controller must
// validate its value as a number or a word, so that the value cannot inject configuration text.
type SafeAnnotation struct {
	Key    string
	Reason string // why the annotation is safe
}

// Streaming configures how the controller forwards requests and responses of an Ingress.
type Streaming struct {
	Timeout time.Duration // 0: no timeout
	MaxBody int64         // maximum number of bytes of a request body; 0: no limit
	Buffer  bool          // buffer whole bodies before forwarding them
}

// noTimeout means "no timeout" for controllers that only accept a number: a week is longer than any generation takes.
const noTimeout = 7 * 24 * time.Hour

// timeoutOrMax returns the timeout to write for a controller that needs a number.
func (s Streaming) timeoutOrMax() time.Duration { return cmp.Or(s.Timeout, noTimeout) }

// Prefix is a path prefix that the backend must not see.
type Prefix struct {
	Namespace, Name string            // of the Ingress, and of its Companion
	Path            string            // an absolute path that ends in "/"
	Annotations     map[string]string // other annotations of the Ingress
}

// withoutSlash returns the path without the trailing slash.
func (p *Prefix) withoutSlash() string { return strings.TrimSuffix(p.Path, "/") }

// Stripped contains the parts of an Ingress that strip a prefix.
type Stripped struct {
	Paths       []networkingv1.HTTPIngressPath // without backends
	Annotations map[string]string
	Companion   *Companion // nil: none
}

// Companion is an object that the annotations of an Ingress refer to.
type Companion struct {
	Resource schema.GroupVersionResource
	Object   *unstructured.Unstructured
}

// ingressPath returns one path of an Ingress.
func ingressPath(kind networkingv1.PathType, text string) networkingv1.HTTPIngressPath {
	return networkingv1.HTTPIngressPath{Path: text, PathType: &kind}
}

// StripsPrefixes reports whether the controller can strip path prefixes on a host that several Ingresses share.
func (c *Controller) StripsPrefixes() bool { return c != nil && c.StripPrefix != nil }

// RewritesHost reports whether the controller cannot strip a prefix without a change to the other Ingresses of the host.
func (c *Controller) RewritesHost() bool { return c != nil && c.MatchesHost }

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

// RecognizeController returns the controller for a value of spec.controller, nil if the controller is unknown.
func RecognizeController(specController string) *Controller {
	for _, c := range controllers {
		if slices.ContainsFunc(c.SpecControllers, func(s string) bool {
			return specController == s || strings.HasSuffix(s, "/") && strings.HasPrefix(specController, s)
		}) {
			return c
		}
	}
	return nil
}

// Class is the IngressClass of an Ingress, as far as it is known. The zero Class means that the Ingress has no class.
type Class struct {
	Name           string      // empty: the Ingress names no class, and the cluster has no default class
	SpecController string      // spec.controller; empty: the IngressClass does not exist
	Controller     *Controller // nil: unknown

	readGroup readGroup
}

// ResolveClass returns the class with the given name. If name is nil, it returns the default class of the cluster.
func ResolveClass(classes []*networkingv1.IngressClass, name *string) Class {
	found := findClass(classes, name)
	switch {
	case found != nil:
		return Class{
			Name: found.Name, SpecController: found.Spec.Controller, Controller: RecognizeController(found.Spec.Controller),
			readGroup: readGroupOf(found),
		}
	case name != nil:
		return Class{Name: *name}
	}
	return Class{}
}

// ClassOfIngress returns the class of an Ingress.
func ClassOfIngress(classes []*networkingv1.IngressClass, ingress *unstructured.Unstructured) Class {
	return ResolveClass(classes, ClassName(ingress))
}

// ClassName returns the name of the class in an Ingress, also in the older annotation, nil if the Ingress names no class.
func ClassName(ingress *unstructured.Unstructured) *string {
	if name, found, err := unstructured.NestedString(ingress.Object, "spec", "ingressClassName"); found && err == nil {
		return &name
	}
	if name, found := ingress.GetAnnotations()[AnnotationClass]; found {
		return &name
	}
	return nil
}

// AnnotationClass is the older way to name a class. The API server rejects an Ingress with both.
const AnnotationClass = "kubernetes.io/ingress.class"

// Exists reports whether the IngressClass exists.
func (c Class) Exists() bool { return c.SpecController != "" }

// StripsPrefixes reports whether the controller of the class can strip path prefixes on a host that several Ingresses share.
func (c Class) StripsPrefixes() bool {
	return c.Controller.StripsPrefixes() && !c.readGroup.lacksGroup(c.Controller.Reads)
}

// MayLackGroup returns the group and version of custom resources that StripPrefix needs, if the class does not say whether its controller
// reads them.
func (c Class) MayLackGroup() string {
	if !c.Controller.StripsPrefixes() || c.readGroup.known {
		return ""
	}
	return c.Controller.Reads
}

// readGroup is the group of the custom resources that the controller of a class reads. The zero value means that the class does not say it.
type readGroup struct {
	known bool
	group string
}

// readGroupOf returns the group that the annotation of a class names. A class of nodepool-ingress without the annotation belongs to a
// controller that reads none.
func readGroupOf(c *networkingv1.IngressClass) readGroup {
	group, found := c.Annotations[openyurt.AnnotationServed]
	return readGroup{known: found || c.Labels[openyurt.LabelPool] != "", group: group}
}

// lacksGroup reports whether the controller is known not to read a group.
func (r readGroup) lacksGroup(group string) bool { return group != "" && r.known && r.group != group }

// Identity identifies the controller of a class: two classes with the same spec.controller have the same identity. The identity of a
// class that does not exist is its name.
func (c Class) Identity() string {
	if c.SpecController != "" {
		return c.SpecController
	}
	return c.Name
}

// findClass returns the class with the given name. If name is nil, it returns the default class. Of several default classes it returns the
// newest, as the API server does.
func findClass(classes []*networkingv1.IngressClass, name *string) *networkingv1.IngressClass {
	var found *networkingv1.IngressClass
	for _, c := range classes {
		switch {
		case name != nil && c.Name == *name:
			return c
		case name != nil || c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] != "true":
		case found == nil || isNewer(c, found):
			found = c
		}
	}
	return found
}

// isNewer reports whether the API server prefers default class a to b.
func isNewer(a, b *networkingv1.IngressClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}
