//go:build system

package decision

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/pkg/kubetest"
	apiserver "fairlead.dev/pkg/kubetest/cluster"
)

const (
	resourceCards = "nvidia.com/gpu"
	namespaceName = "default"
)

// scheduled is a cluster whose nodes and pods are objects of an API server, with the scheduler of Kubernetes.
type scheduled struct {
	*cluster

	t     *testing.T
	kube  kubernetes.Interface
	names map[string]int // nodes
	made  int            // pods
}

// startScheduler runs kube-scheduler until the test ends.
func startScheduler(t *testing.T, api *apiserver.Cluster) {
	t.Helper()
	binary, err := apiserver.FindBinary()
	require.NoError(t, err)
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, binary, "kube-scheduler", "--kubeconfig="+api.Kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--kube-api-qps=300", "--kube-api-burst=600")
	command.Stderr = &log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		cancel()
		_ = command.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
}

// newScheduled creates the nodes of a cluster, and the pods of others on them.
func newScheduled(t *testing.T, c *cluster, kube kubernetes.Interface) *scheduled {
	t.Helper()
	s := &scheduled{cluster: c, t: t, kube: kube, names: map[string]int{}}
	_, err := kube.CoreV1().ServiceAccounts(namespaceName).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for n, node := range c.nodes {
		s.names[node.Name] = n
		room := corev1.ResourceList{
			resourceCards: *resource.NewQuantity(node.Allocatable[0], resource.DecimalSI), "pods": resource.MustParse("110"), "cpu": resource.MustParse("64"), "memory": resource.MustParse("1Ti"),
		}
		created, err := kube.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}, Status: corev1.NodeStatus{Allocatable: room, Capacity: room},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		if node.Ready { // a new node has the taint of one that is not
			created.Spec.Taints = nil
			_, err = kube.CoreV1().Nodes().Update(t.Context(), created, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	for i := range c.others {
		if pod := &c.others[i]; pod.Requests[0] > 0 {
			s.create(pod.Requests[0], nil, pod.Node)
		}
	}
	return s
}

// create creates a pod and returns its name. node can be empty.
func (s *scheduled) create(cards int64, zones []string, node string) string {
	s.t.Helper()
	s.made++
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", s.made)}, Spec: corev1.PodSpec{
		NodeName: node,
		Containers: []corev1.Container{{Name: "server", Image: "server", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{resourceCards: *resource.NewQuantity(cards, resource.DecimalSI)},
		}}},
	}}
	if len(zones) > 0 {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: zones}}}},
		}}}
	}
	_, err := s.kube.CoreV1().Pods(namespaceName).Create(s.t.Context(), pod, metav1.CreateOptions{})
	require.NoError(s.t, err)
	return pod.Name
}

// delete deletes a pod of a variant on a node at once: nothing runs it.
func (s *scheduled) delete(name string) {
	s.t.Helper()
	now := int64(0)
	require.NoError(s.t, s.kube.CoreV1().Pods(namespaceName).Delete(s.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
}

// placed waits until the scheduler has seen all pods, and returns their nodes by name, empty for a pod that fits on none.
func (s *scheduled) placed() map[string]string {
	s.t.Helper()
	var nodes map[string]string
	require.EventuallyWithT(s.t, func(collect *assert.CollectT) {
		list, err := s.kube.CoreV1().Pods(namespaceName).List(s.t.Context(), metav1.ListOptions{})
		require.NoError(collect, err)
		nodes = map[string]string{}
		for i := range list.Items {
			pod := &list.Items[i]
			seen := pod.Spec.NodeName != "" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled })
			require.True(collect, seen, pod.Name)
			nodes[pod.Name] = pod.Spec.NodeName
		}
	}, kubetest.Patience, 50*time.Millisecond)
	return nodes
}

// TestSchedulerFindsNodes: the scheduler of Kubernetes finds a node for each pod of each replica that a decision adds, in a cluster with fragments.
func TestSchedulerFindsNodes(t *testing.T) {
	t.Parallel()
	api := apiserver.Start(t, apiserver.ControlPlaneOnly)
	config := api.RESTConfig()
	config.QPS = -1
	startScheduler(t, api)
	r := rand.New(rand.NewPCG(1, 3))
	s := newScheduled(t, newCluster(r, []int64{1, 2, 3, 5, 8}, 3), kubernetes.NewForConfigOrDie(config))
	pods, loads := make([][]string, len(s.variants)), make([]int64, len(s.variants)/2)
	added, removed, limiting := 0, 0, false
	for range 3 {
		for g := range loads {
			loads[g] = r.Int64N(900)
		}
		d, err := Decide(s.snapshot(loads))
		require.NoError(t, err)
		limiting = limiting || len(d.Binding) > 0
		for i, v := range s.variants {
			v.replicas = d.Groups[v.group].Variants[i%2].Desired
			for len(pods[i]) > v.replicas*int(v.count) {
				n := r.IntN(len(pods[i]))
				s.delete(pods[i][n])
				pods[i] = slices.Delete(pods[i], n, n+1)
				removed++
			}
		}
		for i, v := range s.variants {
			for len(pods[i]) < v.replicas*int(v.count) {
				pods[i] = append(pods[i], s.create(v.cards, v.zones, ""))
				added++
			}
		}
		nodes := s.placed()
		for i, v := range s.variants {
			v.pods = nil
			for _, name := range pods[i] {
				require.NotEmpty(t, nodes[name], "%s of %d cards is pending", name, v.cards)
				v.pods = append(v.pods, s.names[nodes[name]])
			}
		}
	}
	assert.True(t, limiting, "the cluster is too large for the loads")
	assert.Greater(t, added, 100)
	assert.Positive(t, removed)
}
