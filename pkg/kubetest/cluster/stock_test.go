//go:build system

package cluster_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest/cluster"
)

// The second test gets the API server of the first one, without its objects.
func TestStock(t *testing.T) {
	t.Parallel()
	prepared := 0
	stock := &cluster.Stock{
		Prepare: func(testing.TB, *cluster.Cluster) { prepared++ },
		Empty: func(ctx context.Context, c *cluster.Cluster) error {
			return c.Clientset().CoreV1().Secrets(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		},
	}
	defer stock.Stop()
	var addresses []string
	for _, name := range []string{"first", "second"} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // one after the other
			c := stock.BorrowCluster(t)
			addresses = append(addresses, c.APIAddress)
			secrets := c.Clientset().CoreV1().Secrets(metav1.NamespaceDefault)
			left, err := secrets.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			assert.Empty(t, left.Items)
			_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
			require.NoError(t, err)
		})
	}
	require.Len(t, addresses, 2)
	assert.Equal(t, addresses[0], addresses[1])
	assert.Equal(t, 1, prepared)
}
