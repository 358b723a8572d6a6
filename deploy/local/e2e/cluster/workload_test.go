// Package cluster_test tests the embedded Kubernetes itself: its nodes and control plane under outages, its services, its
// images, and that nothing is left of it.
package cluster_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	tick = 100 * time.Millisecond

	workloadImage = "fairlead/modelserver:race"
)

// workload is a Deployment of small web servers named web, with a Service of that name. %d is its replicas, %s its image.
const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata: {labels: {app: web}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 5
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: web
        image: %s
        imagePullPolicy: IfNotPresent
        args: [--drain-delay=3s, --shutdown-timeout=1] # kube-proxy needs a second to follow
        ports: [{name: http, containerPort: 8000}]
        readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: http}]
---
apiVersion: v1
kind: Service
metadata: {name: web-headless}
spec:
  clusterIP: None
  selector: {app: web}
  ports: [{name: http, port: 8000, targetPort: http}]
`

// deploy makes the workload and waits until it is ready.
func deploy(t *testing.T, c *cluster.Cluster, replicas int, image string) {
	t.Helper()
	require.NoError(t, c.Apply(t.Context(), fmt.Sprintf(workload, replicas, image)))
	_, err := c.Kubectl(t.Context(), "rollout", "status", "deployment/web", "--timeout="+kubetest.Patience.String())
	require.NoError(t, err)
}

// pods returns the workload's pods that are meant to stay.
func pods(ctx context.Context, client kubernetes.Interface) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, err
	}
	var kept []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			kept = append(kept, p)
		}
	}
	return kept, nil
}

func isReady(p *corev1.Pod) bool {
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}

// waitReady waits until want pods that are meant to stay are ready, all of them on nodes that ok accepts.
func waitReady(t *testing.T, c *cluster.Cluster, want int, ok func(node string) bool) []corev1.Pod {
	t.Helper()
	var found []corev1.Pod
	client := c.Clientset()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		list, err := pods(t.Context(), client)
		require.NoError(collect, err)
		found = found[:0]
		for _, p := range list {
			if isReady(&p) && ok(p.Spec.NodeName) {
				found = append(found, p)
			}
		}
		require.Len(collect, found, want)
		require.Len(collect, list, want)
	}, kubetest.Patience, tick)
	return found
}

func anyNode(string) bool { return true }

func waitNode(t *testing.T, c *cluster.Cluster, name string, want corev1.ConditionStatus) {
	t.Helper()
	client := c.Clientset()
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(collect, err)
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady {
				require.Equal(collect, want, cond.Status)
			}
		}
	}, kubetest.Patience, tick)
}

// httpClient makes each request by a connection of its own into the cluster.
func httpClient(c *cluster.Cluster) *http.Client {
	return &http.Client{Timeout: kubetest.Patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }}}
}

// get asks a server in the cluster for a path and wants 200.
func get(ctx context.Context, client *http.Client, host, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+path, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}
