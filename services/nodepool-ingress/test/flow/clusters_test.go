//go:build system

package flow

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/services/nodepool-ingress/internal/informers"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cluster.Suite{M: m, Stock: shared, Parallel: 4}) }

// shared are the API servers of the tests that need no CRD of their own.
var shared = &cluster.Stock{Prepare: func(tb testing.TB, c *cluster.Cluster) { newRigIn(tb, c, crdFile) }, Empty: empty}

// empty deletes the objects of a test.
func empty(ctx context.Context, c *cluster.Cluster) error {
	client := dynamic.NewForConfigOrDie(c.RESTConfig())
	if err := deleteYurtIngresses(ctx, client.Resource(informers.YurtIngresses)); err != nil {
		return err
	}
	for _, k := range plan.Kinds() {
		objects := dynamic.ResourceInterface(client.Resource(k.Resource))
		if k.Namespaced {
			objects = client.Resource(k.Resource).Namespace(namespace)
		}
		if err := deleteAll(ctx, objects); err != nil {
			return fmt.Errorf("delete all %s: %w", k.Resource.Resource, err)
		}
	}
	core := c.Clientset().CoreV1()
	if err := core.Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all nodes: %w", err)
	}
	if err := core.Events(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete all events: %w", err)
	}
	return nil
}

func deleteYurtIngresses(ctx context.Context, client dynamic.ResourceInterface) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list YurtIngresses: %w", err)
	}
	for i := range list.Items {
		name := list.Items[i].GetName()
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		if err == nil {
			err = client.Delete(ctx, name, metav1.DeleteOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete YurtIngress %s: %w", name, err)
		}
	}
	return nil
}

// deleteAll deletes all objects of a kind, except those of the system.
func deleteAll(ctx context.Context, client dynamic.ResourceInterface) error {
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		name := list.Items[i].GetName()
		if strings.HasPrefix(name, "system:") || name == "cluster-admin" {
			continue
		}
		if err := client.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
