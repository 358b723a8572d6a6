//go:build system || long

package flow

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// parallel is the number of tests that run at the same time, and of the API servers that they share. Tests mostly wait.
const parallel = "3"

// stock holds idle API servers. One takes several seconds to start, so tests reuse them, one test at a time: a cache shows the slices of all namespaces, and many tests
// require exactly their own changes.
type stock struct {
	mu   sync.Mutex
	free []*cluster.Cluster
	dirs []string
}

var shared = &stock{}

// take returns an API server without objects of other tests. No other test uses it until this test ends.
func (s *stock) take(t *testing.T) *cluster.Cluster {
	t.Helper()
	s.mu.Lock()
	var c *cluster.Cluster
	if last := len(s.free) - 1; last >= 0 {
		c, s.free = s.free[last], s.free[:last]
	}
	s.mu.Unlock()
	if c == nil {
		c = s.launch(t)
	}
	t.Cleanup(func() { s.giveBack(t, c) })
	return c
}

func (s *stock) launch(t *testing.T) *cluster.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "localkube-")
	require.NoError(t, err)
	s.mu.Lock()
	s.dirs = append(s.dirs, dir)
	s.mu.Unlock()
	c, err := cluster.Launch(t.Context(), cluster.Params{Config: clusterapi.Config{Dir: dir, ControlPlaneOnly: true}})
	require.NoError(t, err)
	return c
}

// giveBack empties an API server for the next test. If this fails, giveBack stops it.
func (s *stock) giveBack(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if t.Failed() {
		c.Keep(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience)
	defer cancel()
	if err := empty(ctx, c); err != nil {
		assert.NoError(t, err, "empty the API server")
		c.Stop()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, c)
}

// stop stops all idle API servers, and removes the directories of all.
func (s *stock) stop() {
	for _, c := range s.free {
		c.Stop()
	}
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir)
	}
}

// rights is the name of all roles and bindings of tests.
const rights = "edge"

// written are the kinds of objects that tests create, except namespaces, which nothing here could delete.
var written = []schema.GroupVersionResource{
	{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, {Version: "v1", Resource: "nodes"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "endpoints"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "configmaps"},
	{Version: "v1", Resource: "serviceaccounts"}, {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
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
		if err := client.Resource(kind).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return found, fmt.Errorf("delete %s %s: %w", kind.Resource, name, err)
		}
	}
	return found, nil
}
