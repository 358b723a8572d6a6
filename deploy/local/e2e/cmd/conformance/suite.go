package main

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"fairlead.dev/deploy/local/e2e/conformance"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	namespace = "conformance"
	podName   = "suite"

	reportFile = "report.yaml"
	logFile    = "suite.log"

	// startTimeout limits the start of the pod, whose image is in the store.
	startTimeout = time.Minute
	// endTimeout limits the time from the end of the log to the status of the pod.
	endTimeout = 30 * time.Second
	// suiteTimeout limits the suite. It takes about ten minutes, half of which is one fixed timeout of a test that fails. An unstable test
	// can add five minutes. At half of the limit a slow machine could exceed it, twice the limit would only delay the failure.
	suiteTimeout = 40 * time.Minute
	// maxLine is the longest line of the suite's log. The suite logs whole objects; the largest have some hundred KB.
	maxLine = 4 << 20
)

// timeouts override timeouts of the suite.
//
// MaxTimeToConsistency is the upper bound that the Gateway API sets for it, and ten times what a change takes here. The Inference Extension
// waits for 300 s, also for each request that fails as expected. At 15 s a busy machine could fail a test, at 60 s a run takes two
// minutes longer.
//
// TestIsolation is the pause between tests: upstream has none. Envoy AI Gateway 1.0.0 updates the status of a pool when a test deletes its
// route, and does not repeat an update that conflicts with it. A test that creates a route for the same pool within these milliseconds
// then waits in vain for the status: one run of three failed. At half of the 3 s a busy machine could still fail, twice as much adds 40 s.
const timeouts = "MaxTimeToConsistency:30;TestIsolation:3"

//go:embed objects.yaml
var objects string

// prepare installs the gateways and the objects beside those of the suite.
func prepare(ctx context.Context, c *cluster.Cluster) error {
	if err := stack.InstallEnvoyAIGateway(ctx, c); err != nil {
		return err
	}
	// The class of the examples names the Service, for one Gateway. The suite has two.
	const unnamed = `[{"op": "remove", "path": "/spec/provider/kubernetes/envoyService/name"}]`
	if _, err := c.Kubectl(ctx, "-n", "envoy-gateway-system", "patch", "envoyproxy", "envoy", "--type=json", "--patch",
		unnamed); err != nil {
		return err
	}
	return c.Apply(ctx, objects)
}

// runSuite runs the suite in a pod, because it sends requests to the cluster addresses of Gateways. It writes the log and the report, and
// returns the results of all tests and subtests.
func runSuite(ctx context.Context, c *cluster.Cluster, o options, out io.Writer) ([]conformance.Result, error) {
	report := filepath.Join(o.out, reportFile)
	if err := os.RemoveAll(report); err != nil { // of an earlier run
		return nil, err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout+startTimeout)
	defer cancel()
	client := c.Clientset()
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, suitePod(o), metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("create pod of the suite: %w", err)
	}
	started := func(p *corev1.Pod) bool { return p.Status.Phase != corev1.PodPending }
	if _, err := waitSuite(ctx, client, startTimeout, started); err != nil {
		return nil, fmt.Errorf("wait until the suite runs: %w", err)
	}
	results, err := followLog(ctx, client, o, out)
	if err != nil {
		return nil, err
	}
	ended := func(p *corev1.Pod) bool {
		return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	}
	pod, err := waitSuite(ctx, client, endTimeout, ended)
	if err != nil {
		return nil, fmt.Errorf("wait until the suite has ended: %w", err)
	}
	text := pod.Status.ContainerStatuses[0].State.Terminated.Message
	if text == "" {
		return nil, fmt.Errorf("the suite wrote no report: see %s", filepath.Join(o.out, logFile))
	}
	return results, os.WriteFile(report, []byte(text), 0o644)
}

// suitePod returns the pod of the suite. Its report becomes the termination message of the container, which can have 4096 bytes.
func suitePod(o options) *corev1.Pod {
	args := []string{
		"-test.v=test2json", "-test.timeout=" + suiteTimeout.String(),
		// the cluster ends with the suite
		"--gateway-class=envoy", "--timeout-config-overrides=" + timeouts, "--cleanup-base-resources=false",
		"--report-output=" + corev1.TerminationMessagePathDefault,
		"--organization=fairlead", "--project=endpoint-picker", "--url=https://fairlead.dev", "--version=" + o.version,
	}
	if o.test != "" {
		args = append(args, "--run-test="+o.test)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: namespace},
		Spec: corev1.PodSpec{
			ServiceAccountName: podName, RestartPolicy: corev1.RestartPolicyNever,
			Containers: []corev1.Container{{Name: podName, Image: o.suite, Args: args}},
		},
	}
}

// waitSuite waits until the pod of the suite is as expected.
func waitSuite(ctx context.Context, client kubernetes.Interface, timeout time.Duration,
	expected func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var pod *corev1.Pod
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		var err error
		if pod, err = client.CoreV1().Pods(namespace).Get(ctx, podName, metav1.GetOptions{}); err != nil {
			return false, err
		}
		return expected(pod), nil
	})
	return pod, err
}

// followLog writes the log of the suite to a file until the suite ends, and the results of tests to out. The log must have the result of
// the suite as a whole: otherwise it is incomplete.
func followLog(ctx context.Context, client kubernetes.Interface, o options, out io.Writer) ([]conformance.Result, error) {
	stream, err := client.CoreV1().Pods(namespace).GetLogs(podName, &corev1.PodLogOptions{Follow: true}).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("read log of the suite: %w", err)
	}
	defer stream.Close()
	file, err := os.Create(filepath.Join(o.out, logFile))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var results []conformance.Result
	complete := false
	lines := bufio.NewScanner(io.TeeReader(stream, file))
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		r, ok := conformance.ParseLine(lines.Text())
		switch {
		case !ok:
			continue
		case r.Test == "":
			complete = true
		case r.Subtest == "" && r.Outcome != conformance.Skip:
			fmt.Fprintf(out, "%s %6.1f s  %s\n", r.Outcome, r.Took.Seconds(), r.Test)
		}
		results = append(results, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read log of the suite: %w", err)
	}
	if !complete {
		return nil, fmt.Errorf("the suite did not finish: see %s", file.Name())
	}
	return results, nil
}
