//go:build system

package flow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/pass"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// queuedWorkload is a Deployment as Kueue leaves it.
	queuedWorkload = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: NAME, namespace: models, labels: {kueue.x-k8s.io/queue-name: serving}}, spec: {replicas: 2, selector: {matchLabels: {app: NAME}},
template: {metadata: {labels: {app: NAME, kueue.x-k8s.io/queue-name: serving, kueue.x-k8s.io/managed: "true"}, annotations: {kueue.x-k8s.io/pod-suspending-parent: deployment}},
spec: {containers: [{name: server, image: server, resources: {limits: {nvidia.com/gpu: 2}}}]}}}}`
	localQueue   = `{apiVersion: kueue.x-k8s.io/VERSION, kind: LocalQueue, metadata: {name: serving, namespace: models}, spec: {clusterQueue: gpus}}`
	clusterQueue = `
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: h100}, spec: {nodeLabels: {gpu: H100}}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: gpus}, spec: {stopPolicy: POLICY, namespaceSelector: {}, cohortName: all, resourceGroups: [{coveredResources: [nvidia.com/gpu],
flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: QUOTA, borrowingLimit: 2}]}]}]}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: all}, spec: {resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 9}]}]}]}}`
	gpuNode = `{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: H100, fairlead.dev/elastic: "true"}}}`
)

func clusterQueueWith(policy string, quota int) string {
	return strings.NewReplacer("POLICY", policy, "QUOTA", fmt.Sprint(quota)).Replace(clusterQueue)
}

// TestKueueAppears: the program runs before Kueue, and beside a version that it does not know. It says what is wrong with a queue, for the
// variant in it alone, and reads it once it is right.
func TestKueueAppears(t *testing.T) {
	t.Parallel()
	r := newRig(t, "limiter.enabled=true")
	r.apply(strings.ReplaceAll(queuedWorkload, "NAME", "queued"))
	r.workload("Deployment", "other", "", "")
	r.start(config.ActuatorMetrics, func(c *config.Config) { c.Limiter, c.Discovery = true, 100*time.Millisecond })
	r.variant("queued", "apps/v1", "Deployment", 3)
	r.variant("other", "apps/v1", "Deployment", 3)
	c := r.condition("queued", "OptimizationReady", "False InventoryUnknown")
	assert.Contains(t, c.Message, "install a version of Kueue that serves them")
	r.turns("other", "False MetricsUnavailable")

	crds := r.read("testdata/kueue.yaml")
	future := strings.NewReplacer("name: v1beta1\n", "name: v1beta8\n", "name: v1beta2\n", "name: v1beta9\n").Replace(crds)
	r.apply(future)
	r.pass()
	r.condition("queued", "OptimizationReady", "False InventoryUnknown")
	for _, name := range []string{"clusterqueues", "cohorts", "localqueues", "resourceflavors"} {
		_, err := r.Kubectl(t.Context(), "delete", "crd", name+".kueue.x-k8s.io", "--wait=true")
		require.NoError(t, err)
	}

	r.apply(crds)
	r.turns("queued", "False QueueNotFound")
	r.apply(strings.Replace(localQueue, "VERSION", "v1beta1", 1))
	r.turns("queued", "False QueueNotFound")
	r.apply(clusterQueueWith("Hold", 4))
	c = r.turns("queued", "False QueueInactive")
	assert.Contains(t, c.Message, `ClusterQueue gpus admits no pods: its stopPolicy is "Hold". Set None`)
	r.turns("other", "False MetricsUnavailable")
	r.apply(clusterQueueWith("None", 4))
	r.turns("queued", "False MetricsUnavailable")
	for _, call := range r.calls() {
		if call.Object.Resource != "customresourcedefinitions" {
			assert.NotEqual(t, 403, call.Response.Code, "%s %s", call.Permission(), call.Object.Name)
		}
	}
}

// turns causes passes until the condition OptimizationReady of a variant has a status and a reason: informers hear of a change in their
// time.
func (r *rig) turns(variant, want string) metav1.Condition {
	r.t.Helper()
	require.EventuallyWithT(r.t, func(collect *assert.CollectT) {
		r.pass()
		v, err := r.variants.LlmdV1alpha1().VariantAutoscalings("models").Get(r.t.Context(), variant, metav1.GetOptions{})
		require.NoError(collect, err)
		for _, c := range v.Status.Conditions {
			if c.Type == "OptimizationReady" {
				require.Equal(collect, want, string(c.Status)+" "+c.Reason, c.Message)
			}
		}
	}, kubetest.Patience, time.Second)
	return r.condition(variant, "OptimizationReady", want)
}

// passes has passes over the objects of an API server, with the permissions of the chart, under a load that needs all replicas that there
// can be.
type passes struct {
	*pass.Passes

	settings *settings.Builder
	last     *pass.Outcome
}

func (p *passes) Settings() *settings.Settings { return p.settings.Settings() }

func (p *passes) Actuate(_ context.Context, o *pass.Outcome) { p.last = o }

func (p *passes) EndTerm() {}

func (p *passes) Collector(*settings.Settings) (pass.Collector, error) { return p, nil }

func (p *passes) ObservePart(string, time.Duration) {}

func (p *passes) ReportOutcome(context.Context, *pass.Outcome) error { return nil }

func (p *passes) Collect(_ context.Context, _ time.Time, groups []collect.Group) []collect.Result {
	all := make([]collect.Result, len(groups))
	for i := range groups {
		all[i] = collect.Result{Load: snapshot.Load{State: snapshot.Found, Rate: 1000e6, Input: 100, Output: 100},
			Variants: make([]collect.VariantResult, len(groups[i].Variants))}
	}
	return all
}

// newPasses starts informers with the limiter on.
func (r *rig) newPasses() *passes {
	r.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", r.kubeconfig)
	require.NoError(r.t, err)
	cfg.QPS = -1
	client, clients := dynamic.NewForConfigOrDie(cfg), kubernetes.NewForConfigOrDie(cfg)
	i := informers.New(informers.Params{Params: kit.Params{Log: zap.NewNop(), Client: client, Discovery: clients.Discovery(), Interval: 100 * time.Millisecond}})
	i.WatchInventory()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { i.Run(ctx) })
	r.t.Cleanup(func() { cancel(); running.Wait() })
	require.Eventually(r.t, func() bool { return len(i.Unsynced()) == 0 }, kubetest.Patience, tick)
	p := &passes{settings: settings.NewBuilder(settings.Options{})}
	p.Passes = pass.New(pass.Params{
		Options: pass.Options{Settings: snapshot.Settings{Split: "capacity"}, Limiter: true}, Log: zap.NewNop(), World: i.Caches, LocalQueues: informers.NewQueueReader(client).BeginPass,
		Configuration: p.Settings, Prometheus: p.Collector, Publisher: p, ObservePart: p.ObservePart, Now: time.Now,
	})
	return p
}

// desires runs passes until a variant gets a number of replicas.
func (r *rig) desires(p *passes, want int) (*snapshot.Variant, *decision.Variant) {
	r.t.Helper()
	var v *snapshot.Variant
	var d *decision.Variant
	require.EventuallyWithT(r.t, func(collect *assert.CollectT) {
		_, _, err := p.RunPass(r.t.Context())
		require.NoError(collect, err)
		require.Len(collect, p.last.Snapshot.Groups, 1)
		v, d = &p.last.Snapshot.Groups[0].Variants[0], &p.last.Decision.Groups[0].Variants[0]
		require.Equal(collect, want, d.Desired, "%s, %+v, %+v", d.Message, v.Pods, p.last.Snapshot.Quotas)
	}, kubetest.Patience, tick)
	return v, d
}

// TestKueueQuota: the plan follows the quota, whatever the load, and a lower quota costs no replica that is admitted.
func TestKueueQuota(t *testing.T) {
	t.Parallel()
	r := newRig(t, "limiter.enabled=true")
	r.apply(r.read("testdata/kueue.yaml"))
	r.apply(gpuNode)
	r.apply("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: models}}")
	r.status("node", "", "a", `{"status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}}`)
	r.apply(strings.ReplaceAll(queuedWorkload, "NAME", "queued"))
	for n, place := range []string{"nodeName: a", "nodeName: a", "schedulingGates: [{name: kueue.x-k8s.io/admission}]"} {
		r.apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: queued-x-%d, namespace: models, labels: {app: queued, pod-template-hash: x, kueue.x-k8s.io/managed: "true"},
ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: queued-x, uid: u, controller: true}]}, spec: {%s, containers: [{name: server, image: server, resources: {limits: {nvidia.com/gpu: 2}}}]}}`, n, place))
	}
	r.apply(`{apiVersion: llmd.ai/v1alpha1, kind: VariantAutoscaling, metadata: {name: queued, namespace: models}, spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: queued}, modelID: m, minReplicas: 0,
variantProfile: {perfParms: {decodeParms: {alpha: "10", beta: "0"}, prefillParms: {gamma: "0", delta: "0"}}, maxBatchSize: 16}}}`)
	r.apply(strings.Replace(localQueue, "VERSION", "v1beta2", 1))
	r.apply(clusterQueueWith("None", 10))
	r.status("clusterqueue", "", "gpus", `{"status": {"flavorsReservation": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": 6}]}]}}`)

	p := r.newPasses()
	v, d := r.desires(p, 5)
	assert.Equal(t, []int{1}, v.Pods.Quotas)
	assert.EqualValues(t, 2, v.Pods.Admitted, "six of ten cards are used, two by others, and two can be borrowed")
	assert.Contains(t, d.Short, "the quota of ClusterQueue gpus for nvidia.com/gpu of flavor h100 has 6 cards left for replicas of 2 cards")
	require.NotEmpty(t, p.last.Decision.Binding)
	assert.Equal(t, decision.LimitBinding, d.Reason)

	r.apply(clusterQueueWith("None", 6))
	r.desires(p, 3)
	r.apply(clusterQueueWith("None", 0))
	r.desires(p, 2)
	require.NoError(t, r.delete("localqueue", "models", "serving"))
	v, _ = r.desires(p, 2)
	require.EventuallyWithT(t, func(collect *assert.CollectT) {
		v, _ = r.desires(p, 2)
		require.NotNil(collect, v.Problem)
		require.Equal(collect, snapshot.QueueNotFound, v.Problem.Reason)
	}, kubetest.Patience, tick)
}

// status patches the status of an object.
func (r *rig) status(kind, namespace, name, patch string) {
	r.t.Helper()
	args := []string{"patch", kind, name, "--subresource=status", "--type=merge", "-p", patch}
	if namespace != "" {
		args = append(args, "-n", namespace)
	}
	_, err := r.Kubectl(r.t.Context(), args...)
	require.NoError(r.t, err)
}

func (r *rig) delete(kind, namespace, name string) error {
	_, err := r.Kubectl(r.t.Context(), "delete", kind, name, "-n", namespace)
	return err
}
