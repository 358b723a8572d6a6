package informers

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Node is a node of the cluster: the labels that can be those of a pool, and whether it is ready. The cache of a cluster with thousands of
// nodes has no more of them.
type Node struct {
	metav1.ObjectMeta

	Ready bool
}

// trimNode returns a Transform to *Node.
func trimNode(keys []string) cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		n := &Node{ObjectMeta: metav1.ObjectMeta{
			Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Labels: map[string]string{},
		}}
		for key, value := range u.GetLabels() {
			if slices.Contains(keys, key) {
				n.Labels[key] = value
			}
		}
		var node corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &node); err != nil {
			return n, nil //nolint:nilerr // a node that cannot be read is not ready
		}
		n.Ready = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return n, nil
	}
}

func labelsOf(n *Node) []string {
	var labels []string
	for key, value := range n.Labels {
		labels = append(labels, key+"="+value)
	}
	return labels
}
