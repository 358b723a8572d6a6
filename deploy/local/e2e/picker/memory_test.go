package picker_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
)

const (
	// pickerMemory is the limit of the picker's container, in bytes: less than what it may hold of bodies by default.
	pickerMemory = 128 << 20
	// releaseTag is that of images without the race detector, which needs several times the memory.
	releaseTag = "dev"
)

// It does not run beside other tests: bodies in flight take memory and processors from them.
func TestMemory_LargeBodiesDoNotKillThePicker(t *testing.T) { //nolint:paralleltest // see above
	if testing.Short() {
		t.Skip("long form: bodies of 4 MB, and a cluster alone on the machine")
	}
	c := cluster.Start(t, stack.Publish("127.0.0.1:0"))
	stack.NeedLimits(t, c)
	s, err := stack.Install(t.Context(), c, stack.Options{Tag: releaseTag, Servers: 3, Model: plainTokens, Picker: []string{
		"resources.limits.memory=" + strconv.Itoa(pickerMemory), "resources.requests.memory=64Mi",
		"livenessProbe.timeoutSeconds=60", "readinessProbe.timeoutSeconds=60", // with 30 processes for each processor, the picker answers late
	}})
	require.NoError(t, err)
	require.NoError(t, s.WaitGateway(t.Context()))
	out, err := c.Kubectl(t.Context(), "logs", "deployment/"+stack.Picker)
	require.NoError(t, err)
	assert.Contains(t, out, "Set the soft memory limit")
	assert.Contains(t, out, strconv.Itoa(pickerMemory*9/10), "90 % of the container's")
	assert.Contains(t, out, "The memory limit is small")

	const senders = 40 // more than the picker holds: 14
	statuses := sendBodies(t, s.Gateway(), senders)
	assert.Positive(t, statuses[http.StatusOK], "%v", statuses)
	page, err := stack.Fetch(t.Context(), c, stack.PickerMetrics, "/metrics")
	require.NoError(t, err)
	t.Logf("statuses %v, memory at the end %s", statuses, regexp.MustCompile(`(?m)^process_resident_memory_bytes .*$`).FindString(page))
	pods, err := c.Clientset().CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + stack.Picker})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	status := pods.Items[0].Status.ContainerStatuses[0]
	assert.Zero(t, status.RestartCount, "%v", status.LastTerminationState)
}

// sendBodies has senders send a body of 4 MB each, and counts the answers by status; 0 is an error.
func sendBodies(t *testing.T, gateway string, senders int) map[int]int {
	t.Helper()
	e := exchange{method: http.MethodPost, path: "/tokenize", body: `{"prompt":"` + strings.Repeat("every byte counts, ", 4_000_000/19) + `"}`}
	statuses := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range senders {
		wg.Go(func() {
			got, _ := e.send(t.Context(), clientOf(t, &e, nil), gateway, nil) // an error has no status
			mu.Lock()
			statuses[got.status]++
			mu.Unlock()
		})
	}
	wg.Wait()
	return statuses
}
