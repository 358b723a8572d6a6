//go:build system

package flow

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/variant-autoscaler/internal/config"
)

const (
	hpa = `{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: NAME, namespace: models},
spec: {maxReplicas: 9, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}, metrics: [METRIC]}}`
	cpu      = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}"
	follower = "{type: External, external: {metric: {name: wva_desired_replicas}, target: {type: AverageValue, averageValue: 1}}}"
)

// TestActuator: the program, with the roles of its chart, scales all kinds of targets, and leaves those alone that something else scales.
func TestActuator(t *testing.T) {
	t.Parallel()
	r := newRig(t, "actuator=scale")
	r.workload("Deployment", "deployment", "", "")
	r.workload("Deployment", "paused", "", ", paused: true")
	r.workload("StatefulSet", "statefulset", "", "")
	r.apply("{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: lws, namespace: models}, spec: {leaderWorkerTemplate: {size: 1}}}")
	r.apply("{apiVersion: disaggregatedset.x-k8s.io/v1, kind: DisaggregatedSetRoleScaler, metadata: {name: role, namespace: models}}")
	r.start(config.ActuatorScale)
	targets := [][3]string{
		{"deployment", "apps/v1", "Deployment"}, {"paused", "apps/v1", "Deployment"}, {"statefulset", "apps/v1", "StatefulSet"},
		{"lws", "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"}, {"role", "disaggregatedset.x-k8s.io/v1", "DisaggregatedSetRoleScaler"},
	}
	for i, target := range targets {
		r.variant(target[0], target[1], target[2], i+2)
	}
	for i, target := range targets {
		u := r.replicas(strings.ToLower(target[2]), target[0], int64(i+2))
		r.condition(target[0], "Applied", "True Scaled")
		managed := target[1] != "apps/v1" // the API server does not record who writes the scale of an object of a CRD
		for _, f := range u.GetManagedFields() {
			managed = managed || f.Manager == "fairlead-variant-autoscaler" && f.Subresource == "scale"
		}
		assert.True(t, managed, "%s has a field manager of its own", target[0])
	}
	r.event("deployment", "Scaled Deployment deployment from 1 to 2 replicas")
	assert.ElementsMatch(t, []string{
		"deployments/deployment", "deployments/paused", "statefulsets/statefulset", "leaderworkersets/lws", "disaggregatedsetrolescalers/role",
	}, r.writes(), "one write of each")

	r.testOwners()
	r.testOthers()
	for _, call := range r.calls() {
		if call.Object.Resource != "customresourcedefinitions" { // the version of the CRD is read elsewhere without this permission
			assert.NotEqual(t, 403, call.Response.Code, "%s %s", call.Permission(), call.Object.Name)
		}
	}
}

// testOwners has targets that something else scales, from the beginning or later. Other variants are planned as before.
func (r *rig) testOwners() {
	r.apply(strings.NewReplacer("NAME", "deployment", "METRIC", cpu).Replace(hpa))
	r.pass()
	r.condition("deployment", "Applied", "False TargetOwnedByAutoscaler")
	r.bound("deployment", 7)
	r.bound("statefulset", 7)
	c := r.condition("deployment", "Ready", "False TargetOwnedByAutoscaler")
	assert.Contains(r.t, c.Message, "HorizontalPodAutoscaler deployment scales Deployment deployment, and does not follow this program: delete it")
	r.condition("deployment", "OptimizationReady", "False TargetOwnedByAutoscaler")
	r.replicas("statefulset", "statefulset", 7)
	r.replicas("deployment", "deployment", 2)

	r.apply(strings.NewReplacer("NAME", "deployment", "METRIC", follower).Replace(hpa))
	r.bound("deployment", 8)
	c = r.condition("deployment", "Applied", "True Published")
	assert.Contains(r.t, c.Message, "HorizontalPodAutoscaler deployment follows")
	r.replicas("deployment", "deployment", 2)

	require.NoError(r.t, r.Clientset().AutoscalingV2().HorizontalPodAutoscalers("models").Delete(r.t.Context(), "deployment", metav1.DeleteOptions{}))
	r.pass()
	r.replicas("deployment", "deployment", 8)
	r.condition("deployment", "Applied", "True Scaled")

	r.apply("{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, metadata: {name: so, namespace: models}, spec: {scaleTargetRef: {name: paused}, triggers: [{type: cpu}]}}")
	r.pass()
	r.condition("paused", "Applied", "False TargetOwnedByAutoscaler")
	r.bound("paused", 7)
	r.condition("paused", "Applied", "False TargetOwnedByAutoscaler")
	r.replicas("deployment", "paused", 3)

	r.workload("Deployment", "ome", ", ownerReferences: [{apiVersion: ome.io/v1beta1, kind: InferenceService, name: chat, uid: u, controller: true}]", "")
	r.variant("ome", "apps/v1", "Deployment", 4)
	r.condition("ome", "Applied", "False UnsupportedTarget")
	r.replicas("deployment", "ome", 1)

	r.variant("none", "v1", "ConfigMap", 4)
	r.condition("none", "TargetResolved", "False UnsupportedTarget")
}

// testOthers has somebody who scales by hand: the next pass decides again.
func (r *rig) testOthers() {
	_, err := r.Kubectl(r.t.Context(), "-n", "models", "scale", "statefulset", "statefulset", "--replicas=1")
	require.NoError(r.t, err)
	r.pass()
	r.replicas("statefulset", "statefulset", 7)
	require.EventuallyWithT(r.t, func(c *assert.CollectT) { // the object can be seen before the audit log has its write
		assert.Equal(c, 3, count(r.writes(), "statefulsets/statefulset"), "4, 7 and 7 replicas")
	}, kubetest.Patience, tick)
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// event waits until a variant has an Event with a message.
func (r *rig) event(variant, message string) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		events, err := r.Clientset().CoreV1().Events("models").List(r.t.Context(), metav1.ListOptions{})
		require.NoError(r.t, err)
		for i := range events.Items {
			e := &events.Items[i]
			if e.InvolvedObject.Name == variant && e.Reason == "Scaled" && e.Message == message {
				return true
			}
		}
		return false
	}, kubetest.Patience, tick)
}

// TestQuickStart runs the commands of the quick start without an autoscaler, for the workloads of the example. Then the leader goes, and
// nothing is written twice.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../../../docs/services/variant-autoscaler.md")
	require.NoError(t, err)
	text := string(raw)
	_, text, found := strings.Cut(text, "\n## Without an autoscaler\n")
	require.True(t, found)
	_, text, _ = strings.Cut(text, "```sh\n")
	text, _, _ = strings.Cut(text, "\n```")
	lines := strings.Split(text, "\n")
	require.Len(t, lines, 3)
	_, values, found := strings.Cut(lines[0], "--set ")
	require.True(t, found)

	r := newRig(t, values)
	r.workload("Deployment", "llama-h100-decode", "", "")
	r.workload("Deployment", "llama-l40s-decode", "", "")
	actuator, _ := strings.CutPrefix(values, "actuator=")
	stop := r.start(actuator)
	run := func(line string) string {
		args, is := strings.CutPrefix(strings.NewReplacer("deploy/", "../../../../deploy/", "'", "").Replace(line), "kubectl ")
		require.True(t, is, line)
		out, err := r.Kubectl(t.Context(), strings.Fields(args)...)
		require.NoError(t, err)
		return out
	}
	run(lines[1])
	r.condition("llama-h100", "Applied", "True Scaled")
	assert.Regexp(t, `(?m)^llama-h100 +true +1$`, run(lines[2]))
	r.bound("llama-h100", 3)
	r.replicas("deployment", "llama-h100-decode", 3)
	r.condition("llama-h100", "Applied", "True Scaled")
	require.Len(t, r.writes(), 1)

	stop()
	r.start(actuator)
	r.bound("llama-l40s", 2)
	r.replicas("deployment", "llama-l40s-decode", 2)
	r.condition("llama-l40s", "Applied", "True Scaled")
	assert.Equal(t, []string{"deployments/llama-h100-decode", "deployments/llama-l40s-decode"}, r.writes(), "the new leader repeats nothing")
}

// TestMetricsActuator: by default, the program may not write replicas, and does not.
func TestMetricsActuator(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.workload("Deployment", "deployment", "", "")
	r.start(config.ActuatorMetrics)
	r.variant("deployment", "apps/v1", "Deployment", 4)
	r.condition("deployment", "Applied", "True Published")
	r.replicas("deployment", "deployment", 1)
	assert.Empty(t, r.writes())
}
