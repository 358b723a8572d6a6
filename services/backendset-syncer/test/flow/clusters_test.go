//go:build system

package flow

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"fairlead.dev/pkg/kubetest/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Suite{M: m, Stock: shared, Parallel: 10}) }

// shared are the API servers of all tests that need none of their own.
var shared = &cluster.Stock{Empty: empty}

// namespaces are those of the tests.
var namespaces = []string{"fairlead", "models", "others", "infra"}

// emptied are the kinds of objects that tests create.
var emptied = []schema.GroupVersionResource{
	{Group: "fairlead.dev", Version: "v1alpha1", Resource: "backendsetbindings"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "grpcroutes"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "tlsroutes"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "backendtlspolicies"},
	{Group: "gateway.networking.k8s.io", Version: "v1beta1", Resource: "referencegrants"},
	{Group: "inference.networking.k8s.io", Version: "v1", Resource: "inferencepools"},
	{Group: "oke-gateway-api.gemyago.github.io", Version: "v1", Resource: "gateway-configs"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	{Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "events"},
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "services"},
}

// empty deletes all objects that a test may have created. The cluster has no controllers that could hold them up.
func empty(ctx context.Context, c *cluster.Cluster) error {
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	for {
		left, err := deleteAll(ctx,
			client.Resource(schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}))
		if err != nil {
			return err
		}
		for _, kind := range emptied {
			for _, namespace := range namespaces {
				n, err := deleteAll(ctx, client.Resource(kind).Namespace(namespace))
				if err != nil {
					return fmt.Errorf("empty %s of %s: %w", kind.Resource, namespace, err)
				}
				left += n
			}
		}
		if left == 0 {
			return nil
		}
		time.Sleep(tick)
	}
}

// deleteAll deletes objects, and returns how many it found.
func deleteAll(ctx context.Context, in dynamic.ResourceInterface) (int, error) {
	list, err := in.List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil // the kind is not installed
	}
	if err != nil {
		return 0, fmt.Errorf("list: %w", err)
	}
	for i := range list.Items {
		if err := remove(ctx, in, &list.Items[i]); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("delete %s: %w", list.Items[i].GetName(), err)
		}
	}
	return len(list.Items), nil
}

func remove(ctx context.Context, in dynamic.ResourceInterface, o *unstructured.Unstructured) error {
	if len(o.GetFinalizers()) > 0 {
		o.SetFinalizers(nil)
		if _, err := in.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return in.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
}
