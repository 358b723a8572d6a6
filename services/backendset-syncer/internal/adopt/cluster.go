package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Cluster is what stands in the way of an adoption.
type Cluster struct {
	Deployments []appsv1.Deployment
	// Routes are routes of kinds that the program does not serve.
	Routes []unstructured.Unstructured
	// TLSPolicies are BackendTLSPolicies.
	TLSPolicies []unstructured.Unstructured
}

// maxListed limits the objects of a kind that are read: an adoption is a command of an administrator, and clusters have fewer.
const maxListed = 100_000

// ReadCluster reads a Cluster. A kind that this user may not list is an error: an adoption must not overlook it.
func ReadCluster(ctx context.Context, client dynamic.Interface) (*Cluster, error) {
	c := &Cluster{}
	deployments, err := listObjects(ctx, client, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	if err != nil {
		return nil, err
	}
	for i := range deployments {
		var d appsv1.Deployment
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(deployments[i].Object, &d); err != nil {
			return nil, fmt.Errorf("read deployment %s/%s: %w", deployments[i].GetNamespace(), deployments[i].GetName(), err)
		}
		c.Deployments = append(c.Deployments, d)
	}
	group := gatewayv1.GroupName
	// The newest version that the cluster serves is enough: the API server converts all objects.
	for _, kind := range []struct {
		resource string
		versions []string
		to       *[]unstructured.Unstructured
	}{
		{"grpcroutes", []string{"v1"}, &c.Routes},
		{"tlsroutes", []string{"v1", "v1alpha3", "v1alpha2"}, &c.Routes},
		{"backendtlspolicies", []string{"v1", "v1alpha3"}, &c.TLSPolicies},
	} {
		for _, version := range kind.versions {
			found, err := listObjects(ctx, client, schema.GroupVersionResource{Group: group, Version: version, Resource: kind.resource})
			if err != nil {
				return nil, err
			}
			if *kind.to = append(*kind.to, found...); len(found) > 0 {
				break
			}
		}
	}
	return c, nil
}

// listObjects returns all objects of a resource, none if the cluster does not serve it.
func listObjects(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	found, err := client.Resource(resource).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	case len(found.Items) > maxListed:
		return nil, errors.New("list " + resource.GroupResource().String() + ": more objects than an adoption can check")
	}
	return found.Items, nil
}

// upstreamName is a part of the names of oke-gateway-api's image and chart.
const upstreamName = "oke-gateway-api"

// FindRefusals returns why Gateways with HTTPRoutes cannot be adopted now.
func (c *Cluster) FindRefusals(gateways []*gatewayv1.Gateway, routes []*gatewayv1.HTTPRoute) []Finding {
	var refusals []Finding
	refuse := func(object, format string, args ...any) {
		refusals = append(refusals, Finding{Object: object, Message: fmt.Sprintf(format, args...), Refused: true})
	}
	for i := range c.Deployments {
		if d := &c.Deployments[i]; isUpstream(d) && (ptr.Deref(d.Spec.Replicas, 1) > 0 || d.Status.Replicas > 0) {
			refuse("deployment "+nameOf(d).String(),
				"oke-gateway-api runs, and would delete what it does not know: scale the deployment to 0, "+
					"and wait until its pods have ended")
		}
	}
	names := map[types.NamespacedName]bool{}
	for _, g := range gateways {
		names[nameOf(g)] = true
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		for _, parent := range readReferences(r, "spec", "parentRefs") {
			if names[parent] {
				refuse(strings.ToLower(r.GetKind())+" "+nameOf(r).String(),
					"it is attached to Gateway %s, and this program serves HTTPRoutes only: detach or delete it", parent)
				break
			}
		}
	}
	services := servicesOf(routes)
	for i := range c.TLSPolicies {
		p := &c.TLSPolicies[i]
		for _, target := range readReferences(p, "spec", "targetRefs") {
			if services[target] {
				refuse("backendtlspolicy "+nameOf(p).String(),
					"it applies to Service %s of an HTTPRoute, and this program does not connect to backends by TLS: delete it", target)
				break
			}
		}
	}
	return refusals
}

// isUpstream reports whether a Deployment is that of oke-gateway-api, by its label or its image.
func isUpstream(d *appsv1.Deployment) bool {
	if strings.Contains(d.Labels["app.kubernetes.io/name"], upstreamName) ||
		strings.Contains(d.Spec.Template.Labels["app.kubernetes.io/name"], upstreamName) {
		return true
	}
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return strings.Contains(c.Image, upstreamName)
	})
}

// readReferences returns the objects that a list of references names. A reference without a namespace is one to the object's own.
func readReferences(u *unstructured.Unstructured, fields ...string) []types.NamespacedName {
	items, _, _ := unstructured.NestedSlice(u.Object, fields...)
	var names []types.NamespacedName
	for _, item := range items {
		ref, ok := item.(map[string]any)
		if !ok {
			continue
		}
		name, _, _ := unstructured.NestedString(ref, "name")
		namespace, found, _ := unstructured.NestedString(ref, "namespace")
		if !found || namespace == "" {
			namespace = u.GetNamespace()
		}
		names = append(names, types.NamespacedName{Namespace: namespace, Name: name})
	}
	return names
}

// servicesOf returns the Services of HTTPRoutes.
func servicesOf(routes []*gatewayv1.HTTPRoute) map[types.NamespacedName]bool {
	services := map[types.NamespacedName]bool{}
	for _, r := range routes {
		for i := range r.Spec.Rules {
			for _, ref := range r.Spec.Rules[i].BackendRefs {
				services[types.NamespacedName{
					Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), Name: string(ref.Name),
				}] = true
			}
		}
	}
	return services
}

// RoutesOf returns the HTTPRoutes that are attached to Gateways, or that have rules on their load balancer, sorted.
func RoutesOf(gateways []*gatewayv1.Gateway, routes []*gatewayv1.HTTPRoute) []*gatewayv1.HTTPRoute {
	names := map[types.NamespacedName]bool{}
	for _, g := range gateways {
		names[nameOf(g)] = true
	}
	var attached []*gatewayv1.HTTPRoute
	for _, r := range routes {
		if slices.ContainsFunc(r.Spec.ParentRefs, func(ref gatewayv1.ParentReference) bool {
			return ptr.Deref(ref.Kind, "Gateway") == "Gateway" &&
				names[types.NamespacedName{
					Namespace: string(ptr.Deref(ref.Namespace, gatewayv1.Namespace(r.Namespace))), Name: string(ref.Name),
				}]
		}) {
			attached = append(attached, r)
		}
	}
	slices.SortFunc(attached, func(a, b *gatewayv1.HTTPRoute) int { return strings.Compare(nameOf(a).String(), nameOf(b).String()) })
	return attached
}
