package stack

import (
	"context"
	"net"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest/cluster"
)

// PickerPods selects the pods of the picker.
const PickerPods = "app.kubernetes.io/name=" + PickerImage

// SumPickers adds up a metric of all pickers that answer.
func SumPickers(ctx context.Context, c *cluster.Cluster, metric string) (total float64, err error) {
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: PickerPods})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	for i := range pods.Items {
		if page, err := Fetch(ctx, c, net.JoinHostPort(pods.Items[i].Status.PodIP, "9090"), "/metrics"); err == nil {
			total += Sum(page, metric)
		}
	}
	return total, nil
}

// Sum adds up the values of a metric over its label sets, from a page in the text format of Prometheus.
func Sum(page, metric string) float64 {
	var total float64
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		rest, ok := strings.CutPrefix(line, metric)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		if value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64); err == nil {
			total += value
		}
	}
	return total
}
