package stack

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/emulators/chatload"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/cluster"
)

const rollTick = 250 * time.Millisecond

// Load is a load of completions in progress.
type Load struct {
	stop    chan struct{}
	ended   chan error
	report  *chatload.Report
	results []chatload.Result
}

// StartLoad sends completions until Finish.
func StartLoad(ctx context.Context, o chatload.Options) *Load {
	l := &Load{stop: make(chan struct{}), ended: make(chan error, 1)}
	o.Stop, o.OnResult = l.stop, func(r chatload.Result) { l.results = append(l.results, r) }
	go func() {
		var err error
		l.report, err = chatload.Run(ctx, o)
		l.ended <- err
	}()
	return l
}

// Finish waits for the requests in progress, and returns what became of all requests.
func (l *Load) Finish() (*chatload.Report, []chatload.Result, error) {
	close(l.stop)
	err := <-l.ended
	return l.report, l.results, err
}

// WaitRunning waits until the model servers have n requests in progress.
func WaitRunning(ctx context.Context, c *cluster.Cluster, n int) error {
	return poll(ctx, kubetest.Patience, rollTick, func(ctx context.Context) error {
		pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: "app=" + Pool})
		if err != nil {
			return err
		}
		var running float64
		for i := range pods.Items {
			page, err := Fetch(ctx, c, net.JoinHostPort(pods.Items[i].Status.PodIP, "8000"), "/metrics")
			if err != nil {
				return err
			}
			running += Sum(page, "vllm:num_requests_running")
		}
		if running < float64(n) {
			return fmt.Errorf("%v requests are in progress, want %d", running, n)
		}
		return nil
	})
}

// WaitOnly waits until all pods with these images have one tag: the old pods have finished their requests, which takes the time of their
// drain beside that of the roll.
func WaitOnly(ctx context.Context, c *cluster.Cluster, tag string, images ...string) error {
	return poll(ctx, 2*kubetest.Patience, rollTick, func(ctx context.Context) error {
		pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			p := &pods.Items[i]
			for _, name := range images {
				if got := p.Spec.Containers[0].Image; strings.HasPrefix(got, image(name, "")) && got != image(name, tag) {
					return fmt.Errorf("pod %s has the image %s", p.Name, got)
				}
			}
		}
		return nil
	})
}

// poll returns when check succeeds. After the timeout it returns the last error of check, which gets a limited time for each attempt.
func poll(ctx context.Context, timeout, interval time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, attemptTimeout)
		err := check(attempt)
		end()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval):
		}
	}
}
