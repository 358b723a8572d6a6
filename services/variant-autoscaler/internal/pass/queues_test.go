package pass

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// fakeQueues are the LocalQueues of a world of objects.
type fakeQueues struct {
	queues map[cache.ObjectName]*inventory.LocalQueue
	err    error
	reads  int
}

func (f *fakeQueues) BeginPass(context.Context) (read informers.ReadQueue, end func()) {
	return func(name cache.ObjectName) (*inventory.LocalQueue, error) {
		f.reads++
		if f.err != nil {
			return nil, f.err
		}
		if f.queues[name] == nil {
			return nil, informers.ErrQueueNotFound
		}
		return f.queues[name], nil
	}, func() {}
}

func localQueuesOf(t *testing.T, text string) *fakeQueues {
	t.Helper()
	fake := &fakeQueues{queues: map[cache.ObjectName]*inventory.LocalQueue{}}
	for part := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(part))
		require.NoError(t, err)
		require.NoError(t, u.UnmarshalJSON(raw))
		if u.GetKind() == "LocalQueue" {
			u.SetNamespace("ns")
			fake.queues[cache.ObjectName{Namespace: "ns", Name: u.GetName()}] = informers.ReadLocalQueue(u)
		}
	}
	return fake
}

// queued has the workloads of gpus in a LocalQueue, whose ClusterQueue has six cards of H100 and any number of L40S. Two of its cards are
// used by the pod of big, and two by somebody else.
var queued = strings.NewReplacer(
	"metadata: {name: big}, spec: {replicas: 1,", "metadata: {name: big, labels: {kueue.x-k8s.io/queue-name: models}}, spec: {replicas: 1,",
	"metadata: {name: small}, spec: {replicas: 1,", "metadata: {name: small, labels: {kueue.x-k8s.io/queue-name: models}}, spec: {replicas: 1,",
	"{nvidia.com/gpu: 3}", "{nvidia.com/gpu: 0}",
).Replace(gpus) + `
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: models}, spec: {clusterQueue: serving}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: serving}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors:
    - {name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 6}]}
    - {name: l40s, resources: [{name: nvidia.com/gpu, nominalQuota: "9223372036854775807"}]}
status: {flavorsReservation: [{name: h100, resources: [{name: nvidia.com/gpu, total: 4}]}]}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: h100}, spec: {nodeLabels: {gpu: H100}}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: l40s}, spec: {nodeLabels: {gpu: L40S}}}
`

// TestQueues: variants get what their ClusterQueue admits, and what nodes have.
func TestQueues(t *testing.T) {
	t.Parallel()
	r := limiter(t, queued)
	r.load.Rate = 100e6
	assert.Equal(t, map[string]int{"big": 2, "small": 4}, r.pass(t), "the quota admits one more pod of big, the node of L40S has four cards")
	s, d := r.last()
	require.Len(t, s.Quotas, 2)
	assert.Equal(t, snapshot.Quota{Name: "quota of ClusterQueue serving for nvidia.com/gpu of flavor h100", Parent: -1, Nominal: 6, Used: 4}, s.Quotas[0])
	assert.Equal(t, &snapshot.Pods{Set: 0, Cards: 2, Count: 1, Placed: 1, Quotas: []int{0}, Admitted: 1}, s.Groups[0].Variants[0].Pods)
	assert.Equal(t, decision.LimitBinding, d.Variants[0].Reason)
	assert.Equal(t, "the nodes with nvidia.com/gpu (NVIDIA-H100) have 3 free places for pods of 2 cards. Add nodes, or free cards of them; and "+
		"the quota of ClusterQueue serving for nvidia.com/gpu of flavor h100 has 2 cards left for replicas of 2 cards. Raise the quota, or end other workloads that use it",
		d.Variants[0].Short)
}

// TestQueuedPods: a pod that waits for Kueue is none that starts, and one that it has admitted holds quota before it has a node.
func TestQueuedPods(t *testing.T) {
	t.Parallel()
	const pod = `
---
apiVersion: v1
kind: Pod
metadata: {name: big-2, labels: {pod-template-hash: x, kueue.x-k8s.io/managed: "true"}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: big-x, controller: true}]}
spec: {GATES containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}`
	for gates, want := range map[string]struct {
		admitted int64
		pods     int
	}{"schedulingGates: [{name: kueue.x-k8s.io/admission}],": {1, 1}, "": {2, 2}} {
		r := limiter(t, queued+strings.Replace(pod, "GATES", gates, 1))
		r.pass(t)
		s, _ := r.last()
		assert.Equal(t, want.admitted, s.Groups[0].Variants[0].Pods.Admitted, gates)
		assert.Equal(t, []snapshot.FreeNodes{{Cards: 6, Nodes: 1}}, s.Nodes[0].Free, "it has no node")
		assert.Len(t, r.outcomes[0].Sources.Groups[0].Variants[0].Pods, want.pods, gates)
	}
}

// TestQueueProblems: the variant keeps its replicas, and the other one, which is in another queue, is planned.
func TestQueueProblems(t *testing.T) {
	t.Parallel()
	other := strings.Replace(queued, "metadata: {name: small, labels: {kueue.x-k8s.io/queue-name: models}}", "metadata: {name: small}", 1)
	for _, tt := range []struct {
		name, from, to string
		want, message  string
	}{
		{"no LocalQueue", "metadata: {name: models}", "metadata: {name: others}", snapshot.QueueNotFound, "LocalQueue ns/models, which the label kueue.x-k8s.io/queue-name names, is not known: it does not exist"},
		{"no ClusterQueue", "metadata: {name: serving}", "metadata: {name: others}", snapshot.QueueNotFound, `ClusterQueue "serving" does not exist`},
		{"stopped LocalQueue", "spec: {clusterQueue: serving}", "spec: {clusterQueue: serving, stopPolicy: Hold}", snapshot.QueueInactive, `LocalQueue ns/models admits no pods: its stopPolicy is "Hold". Set None`},
		{"stopped ClusterQueue", "spec:\n  resourceGroups:", "spec:\n  stopPolicy: HoldAndDrain\n  resourceGroups:", snapshot.QueueInactive, "ClusterQueue serving admits no pods"},
		{"inactive ClusterQueue", "status: {flavorsReservation", "status: {conditions: [{type: Active, status: 'False', reason: FlavorNotFound, message: gone}], flavorsReservation", snapshot.QueueInactive, "its condition Active is False (FlavorNotFound: gone)"},
		{"no flavor", "spec: {nodeLabels: {gpu: H100}}", "spec: {nodeLabels: {gpu: H200}}", snapshot.QuotaMissing, "ClusterQueue serving has no quota for nvidia.com/gpu in a flavor that suits"},
		{"negative quota", "nominalQuota: 6", "nominalQuota: -6", snapshot.InventoryInvalid, "ClusterQueue serving has a quota or a use of nvidia.com/gpu in flavor h100 that cannot be true"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			objects := strings.Replace(other, tt.from, tt.to, 1)
			require.NotEqual(t, other, objects)
			s, _ := requireProblem(t, objects, tt.want, tt.message).last()
			assert.Nil(t, s.Groups[0].Variants[1].Problem)
		})
	}
}

// TestQueuesAreNotKnown: the last decision stands where Kueue manages a workload, and where it does not, the label has no effect.
func TestQueuesAreNotKnown(t *testing.T) {
	t.Parallel()
	marked := strings.Replace(queued, "template: {spec: {nodeSelector: {gpu: H100}", "template: {metadata: {annotations: {kueue.x-k8s.io/pod-suspending-parent: deployment}}, spec: {nodeSelector: {gpu: H100}", 1)
	managed := strings.Replace(queued, "metadata: {name: big-1, labels: {", `metadata: {name: big-1, labels: {kueue.x-k8s.io/managed: "true", `, 1)
	for name, objects := range map[string]string{"pod template": marked, "pod": managed, "label alone": queued} {
		r := limiter(t, objects)
		r.load.Rate = 100e6
		before := r.pass(t)
		r.p.World.ClusterQueues = &unlisted{r.p.World.ClusterQueues}
		after := r.pass(t)
		s, d := r.last()
		if name == "label alone" {
			assert.Equal(t, map[string]int{"big": 4, "small": 4}, after, "the node has six cards beside the pod that runs")
			assert.Nil(t, s.Groups[0].Variants[0].Problem)
			continue
		}
		assert.Equal(t, before, after, name)
		require.NotNil(t, s.Groups[0].Variants[0].Problem, name)
		assert.Equal(t, snapshot.InventoryUnknown, s.Groups[0].Variants[0].Problem.Reason, name)
		assert.Contains(t, d.Variants[0].Message, "Kueue manages the workload, and ClusterQueues and ResourceFlavors of kueue.x-k8s.io/v1beta2 or v1beta1 cannot be listed", name)
	}

	r := limiter(t, strings.Replace(queued, "spec:\n  resourceGroups:", "spec:\n  cohortName: all\n  resourceGroups:", 1))
	r.p.World.Cohorts = &unlisted{r.p.World.Cohorts}
	r.pass(t)
	s, _ := r.last()
	assert.Contains(t, s.Groups[0].Variants[0].Problem.Message, "ClusterQueue serving is in a cohort, and Cohorts cannot be listed")
	for err, want := range map[error]string{errors.New("timeout"): snapshot.InventoryUnknown, fmt.Errorf("%w", informers.ErrTooManyQueues): snapshot.LimitExceeded} {
		r = limiter(t, queued)
		r.queues.err = err
		r.pass(t)
		s, _ = r.last()
		assert.Equal(t, want, s.Groups[0].Variants[0].Problem.Reason)
	}
}

// TestNoQueues: nothing of Kueue is read for variants without a queue.
func TestNoQueues(t *testing.T) {
	t.Parallel()
	r := limiter(t, gpus)
	r.pass(t)
	s, _ := r.last()
	assert.Empty(t, s.Quotas)
	assert.Zero(t, r.queues.reads)
}
