//go:build system || long

package flow

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kubetest/cluster"
)

// shared are the API servers of all tests that need none of their own. Each serves one test at a time: a cache shows the slices of all
// namespaces, and many tests require exactly their own changes.
var shared = &cluster.Stock{Empty: empty}

// rights is the name of all roles and bindings of tests.
const rights = "edge"

// written are the kinds of objects that tests create, except namespaces, which nothing here could delete.
var written = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, {Version: "v1", Resource: "nodes"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, {Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "endpoints"}, {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "serviceaccounts"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

// empty deletes all objects that a test may have created.
func empty(ctx context.Context, c *cluster.Cluster) error {
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	for {
		left := 0
		for _, kind := range written {
			n, err := deleteAll(ctx, client, kind)
			if err != nil {
				return err
			}
			left += n
		}
		if left == 0 {
			return nil
		}
		time.Sleep(tick)
	}
}

// deleteAll deletes the objects of a kind, and returns the number of objects that it found.
func deleteAll(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource) (int, error) {
	list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", kind.Resource, err)
	}
	found := 0
	for i := range list.Items {
		namespace, name := list.Items[i].GetNamespace(), list.Items[i].GetName()
		ofSystem := strings.HasPrefix(namespace, "kube-") || namespace == metav1.NamespaceDefault && name == "kubernetes"
		if ofSystem || kind.Group == "rbac.authorization.k8s.io" && name != rights {
			continue
		}
		found++
		if err := client.Resource(kind).Namespace(namespace).Delete(ctx, name,
			metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return found, fmt.Errorf("delete %s %s: %w", kind.Resource, name, err)
		}
	}
	return found, nil
}
