package informers_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

const clusterQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: serving, resourceVersion: "7"}
spec:
  cohortName: all
  stopPolicy: None
  resourceGroups:
  - coveredResources: [cpu, nvidia.com/gpu]
    flavors:
    - name: h100
      resources: [{name: cpu, nominalQuota: 100}, {name: nvidia.com/gpu, nominalQuota: 1k, borrowingLimit: 8, lendingLimit: "0"}]
    - {name: l40s, resources: [{name: nvidia.com/gpu, nominalQuota: "9223372036854775807"}]}
  - {flavors: [{name: mi300, resources: [{name: amd.com/gpu, nominalQuota: -1}, {name: amd.com/gpu, nominalQuota: 1E}]}, 7]}
status:
  conditions: [7, {type: Active, status: "True"}]
  flavorsReservation: [{name: h100, resources: [{name: nvidia.com/gpu, total: 3}]}, {name: l40s, resources: 7}]`

func TestClusterQueue(t *testing.T) {
	t.Parallel()
	kind := kindOf("clusterqueues.kueue.x-k8s.io")
	q := read[informers.QuotaOwner](t, kind, clusterQueue)
	assert.Equal(t, &informers.QuotaOwner{Identity: informers.Identity{Name: "serving", Version: "7"}, QuotaOwner: inventory.QuotaOwner{
		Name: "serving", Parent: "all", Quotas: []inventory.FlavorQuota{
			{Flavor: "h100", Nominal: 1000, Borrowing: new(int64(8)), Lending: new(int64(0)), Used: 3}, {Flavor: "l40s", Nominal: 1e7},
			{Flavor: "mi300", Resource: 1, Nominal: inventory.Unreadable}, {Flavor: "mi300", Resource: 1, Nominal: 1e7},
		},
	}}, q)
	older := read[informers.QuotaOwner](t, kind, strings.Replace(clusterQueue, "cohortName", "cohort", 1))
	assert.Equal(t, q, older, "v1beta1")
	for _, policy := range []string{"Hold", "HoldAndDrain", "Later"} {
		assert.Contains(t, read[informers.QuotaOwner](t, kind, strings.Replace(clusterQueue, "stopPolicy: None", "stopPolicy: "+policy, 1)).Inactive, policy)
	}
	assert.Equal(t, "its condition Active is False (Stopped: )", read[informers.QuotaOwner](t, kind, strings.Replace(clusterQueue, `"True"`, `"False", reason: Stopped`, 1)).Inactive)

	cohort := read[informers.QuotaOwner](t, kindOf("cohorts.kueue.x-k8s.io"), "kind: Cohort\nmetadata: {name: all}\nspec: {parentName: root, resourceGroups: [{flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 2}]}]}]}")
	assert.Equal(t, inventory.QuotaOwner{Name: "all", Parent: "root", Quotas: []inventory.FlavorQuota{{Flavor: "h100", Nominal: 2}}}, cohort.QuotaOwner)
}

// TestHostileClusterQueue: what a quota cannot be is not believed, and no list takes more memory than usual ones.
func TestHostileClusterQueue(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		`"0E"`: 0, `"9Ei"`: 1e7, `"E"`: -1, `"-1E"`: -1, `"1e99999999"`: -1, `"many"`: -1, "-5": -1, "1.5": -1, "[]": -1, "null": 0, `"` + strings.Repeat("9", 99) + `"`: -1, `"9223372036854775808"`: 1e7,
	} {
		q := read[informers.QuotaOwner](t, kindOf("clusterqueues.kueue.x-k8s.io"), fmt.Sprintf("kind: ClusterQueue\nspec: {resourceGroups: [{flavors: [{name: a, resources: [{name: nvidia.com/gpu, nominalQuota: %s}]}]}]}", text))
		assert.Equal(t, want, q.Quotas[0].Nominal, text)
	}
	many := "kind: ClusterQueue\nspec: {resourceGroups: [{flavors: [" + strings.Repeat("{name: a, resources: [{name: nvidia.com/gpu}]},", 2000) + "]}]}"
	assert.Len(t, read[informers.QuotaOwner](t, kindOf("clusterqueues.kueue.x-k8s.io"), many).Quotas, 1024)
	f := read[informers.Flavor](t, kindOf("resourceflavors.kueue.x-k8s.io"), "kind: ResourceFlavor\nspec: {nodeTaints: ["+strings.Repeat("{key: a},", 2000)+"], tolerations: ["+strings.Repeat("7,", 2000)+"]}")
	assert.Len(t, f.Taints, 64)
	assert.Len(t, f.Tolerations, 64)
}

func TestResourceFlavor(t *testing.T) {
	t.Parallel()
	f := read[informers.Flavor](t, kindOf("resourceflavors.kueue.x-k8s.io"), `
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {gpu: H100}, nodeTaints: [{key: gpu, value: x, effect: NoSchedule}], tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]}`)
	assert.Equal(t, inventory.Flavor{
		Name: "h100", Labels: map[string]string{"gpu": "H100"}, Taints: []corev1.Taint{{Key: "gpu", Value: "x", Effect: "NoSchedule"}},
		Tolerations: []corev1.Toleration{{Key: "gpu", Operator: "Exists", Effect: "NoSchedule"}},
	}, f.Flavor)
}

func TestLocalQueue(t *testing.T) {
	t.Parallel()
	const reserved = `
kind: LocalQueue
metadata: {namespace: models, name: chat}
spec: {clusterQueue: serving, stopPolicy: Hold}
status:
  flavorsReservation: [{name: h100, resources: [{name: nvidia.com/gpu, total: 5}]}, {name: l40s, resources: [{name: nvidia.com/gpu, total: 1}]}]
  flavorsUsage: [{name: h100, resources: [{name: nvidia.com/gpu, total: 2}]}, {name: l40s, resources: [{name: nvidia.com/gpu, total: 4}]}]`
	for _, text := range []string{reserved, strings.Replace(reserved, "flavorsUsage", "flavorUsage", 1)} {
		q := informers.ReadLocalQueue(object(t, text))
		assert.Equal(t, &inventory.LocalQueue{Namespace: "models", Name: "chat", ClusterQueue: "serving", Inactive: `its stopPolicy is "Hold". Set None`, Reserved: inventory.Cards{3}}, q)
	}
}

// TestQueueOfAWorkload: the label of a workload, or of its pod template, names its queue.
func TestQueueOfAWorkload(t *testing.T) {
	t.Parallel()
	const label = "{labels: {kueue.x-k8s.io/queue-name: chat}}"
	for _, text := range []string{"metadata: " + label, "spec: {template: {metadata: " + label + "}}"} {
		w := read[informers.Workload](t, kindOf("deployments.apps"), "kind: Deployment\n"+text)
		assert.Equal(t, "chat", w.Queue, text)
		assert.False(t, w.Queued)
	}
	w := read[informers.Workload](t, kindOf("leaderworkersets.leaderworkerset.x-k8s.io"), "kind: LeaderWorkerSet\nmetadata: "+label+"\nspec: {leaderWorkerTemplate: {workerTemplate: {metadata: {annotations: {kueue.x-k8s.io/pod-suspending-parent: leaderworkerset}}}}}")
	assert.Equal(t, "chat", w.Queue)
	assert.True(t, w.Queued)
}

// TestGatedPod: a pod that waits for Kueue does not start yet, and its start begins with its node.
func TestGatedPod(t *testing.T) {
	t.Parallel()
	const pod = `
kind: Pod
metadata: {namespace: models, name: p, creationTimestamp: "2026-11-01T12:00:00Z", labels: {LABEL pod-template-hash: x}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: chat-x, controller: true}]}
spec: {SPEC containers: [{resources: {limits: {nvidia.com/gpu: 2}}}]}
status: {conditions: [{type: PodScheduled, status: "True", lastTransitionTime: "2026-11-01T13:00:00Z"}]}`
	of := func(label, spec string) *informers.Pod {
		return read[informers.Pod](t, kindOf("pods"), strings.NewReplacer("LABEL", label, "SPEC", spec).Replace(pod))
	}
	const managed = `kueue.x-k8s.io/managed: "true",`
	p := of(managed, "schedulingGates: [7, {name: kueue.x-k8s.io/admission}],")
	assert.Empty(t, p.Owner())
	require.NotNil(t, p.Holding())
	assert.True(t, p.Holding().Gated)
	assert.Empty(t, p.Holding().Node.Value())
	p = of(managed, "")
	assert.Equal(t, "chat", p.Owner().Name)
	assert.Equal(t, 13, p.Created().UTC().Hour())
	assert.True(t, p.Holding().Queued)
	assert.False(t, p.Holding().Gated)
	p = of("", "")
	assert.Equal(t, 12, p.Created().UTC().Hour())
	assert.Nil(t, p.Holding(), "of pods that Kueue does not manage, those without a node hold nothing")
}

// kueueVersions serves the kinds of Kueue in some versions.
type kueueVersions struct {
	mu     sync.Mutex
	served map[string][]string // resources by group and version
}

func (k *kueueVersions) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.served[groupVersion] == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	list := &metav1.APIResourceList{}
	for _, name := range k.served[groupVersion] {
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
	}
	return list, nil
}

func (k *kueueVersions) serve(served map[string][]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.served = served
}

// TestVersionsOfKueue: each object is read in one version, whichever the cluster serves, and whenever its CRD appears.
func TestVersionsOfKueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lists := map[schema.GroupVersionResource]string{}
		for _, k := range informers.Declare("").EnabledKinds() {
			lists[k.Resource] = k.Name + "List"
		}
		newer, older := object(t, clusterQueue), object(t, strings.NewReplacer("v1beta2", "v1beta1", "cohortName: all", "cohort: old").Replace(clusterQueue))
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, newer, older)
		versions := &kueueVersions{}
		i := informers.New(informers.Params{Params: kit.Params{Log: zap.NewNop(), Client: client, Discovery: versions, Interval: time.Minute}})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { i.Run(ctx) })
		defer func() { cancel(); running.Wait() }()
		i.WatchInventory()
		kueue := i.Caches
		cohort := func() string {
			time.Sleep(4 * time.Minute) // some polls
			all := informers.ListAll[informers.QuotaOwner](kueue.ClusterQueues)
			if !kueue.ClusterQueues.Listed() {
				return "unknown"
			}
			require.Len(t, all, 1)
			return all[0].Parent
		}
		assert.Equal(t, "unknown", cohort())
		assert.Empty(t, i.Unsynced(), "a cluster without Kueue is ready")
		all := []string{"clusterqueues", "cohorts", "resourceflavors"}
		versions.serve(map[string][]string{"kueue.x-k8s.io/v1beta3": all})
		assert.Equal(t, "unknown", cohort(), "another version")
		versions.serve(map[string][]string{"kueue.x-k8s.io/v1beta1": all})
		assert.Equal(t, "old", cohort())
		versions.serve(map[string][]string{"kueue.x-k8s.io/v1beta1": all, "kueue.x-k8s.io/v1beta2": all})
		assert.Equal(t, "all", cohort())
		client.ClearActions()
		assert.Equal(t, "all", cohort())
		for _, action := range client.Actions() {
			assert.Equal(t, "v1beta2", action.GetResource().Version, "one version is watched")
		}
		versions.serve(map[string][]string{"kueue.x-k8s.io/v1beta1": all, "kueue.x-k8s.io/v1beta2": {"resourceflavors"}})
		assert.Equal(t, "old", cohort())
	})
}

// FuzzClusterQueue reads what whoever may write a ClusterQueue or its status writes.
func FuzzClusterQueue(f *testing.F) {
	f.Add("8", "h100", "Active", "1e99999999")
	f.Add("-1", "", "", "9E")
	f.Fuzz(func(t *testing.T, a, name, condition, b string) {
		resources := []any{map[string]any{"name": "nvidia.com/gpu", "nominalQuota": a, "borrowingLimit": b, "total": b}, name}
		u := &unstructured.Unstructured{Object: map[string]any{
			"kind": "ClusterQueue", "metadata": map[string]any{"name": name}, "spec": map[string]any{"resourceGroups": []any{map[string]any{"flavors": []any{map[string]any{"name": name, "resources": resources}}}}},
			"status": map[string]any{"flavorsReservation": []any{map[string]any{"name": name, "resources": resources}}, "conditions": []any{map[string]any{"type": condition, "status": a}}},
		}}
		obj, err := kindOf("clusterqueues.kueue.x-k8s.io").Transform(u)
		require.NoError(t, err)
		for _, q := range obj.(*informers.QuotaOwner).Quotas {
			assert.GreaterOrEqual(t, q.Nominal, int64(inventory.Unreadable))
			assert.GreaterOrEqual(t, q.Used, int64(inventory.Unreadable))
			assert.LessOrEqual(t, q.Nominal, int64(1e7))
		}
	})
}
