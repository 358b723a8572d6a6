//go:build system

package flow

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/kubetest"
)

// TestRollout rolls a bad image out to four pools: the first one fails, and the others keep the old image. The correct image reaches all,
// one after the other, and the pool without a ready node last.
func TestRollout(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pools := []string{"a", "b", "c", "d"}
	r.pools(pools...)
	r.ready("node-b", corev1.ConditionFalse)
	r.deploy()
	r.start()
	r.create("edge", `{ingress_controller_image: "`+traefik+`:v1", pools: [{name: a}, {name: b}, {name: c}, {name: d}]}`)
	for _, pool := range pools {
		r.await("edge", pool, conditionR, ready)
	}

	r.patch("edge", `{"spec": {"ingress_controller_image": "`+traefik+`:bad"}}`)
	r.await("edge", "a", conditionR, "False ProgressDeadlineExceeded")
	r.await("edge", "b", v1alpha1.ConditionProgrammed, "False RolloutStopped")
	r.await("edge", "c", v1alpha1.ConditionProgrammed, "False RolloutStopped")
	r.await("edge", "d", v1alpha1.ConditionProgrammed, "False RolloutStopped")
	time.Sleep(quiet)
	for _, pool := range pools[1:] {
		assert.Equal(t, traefik+":v1", image(r.deployment(pool)), pool)
	}
	status := r.get("edge").Status
	assert.Equal(t, int32(4), status.UnreadyNum)
	for _, p := range status.Conditions.UnreadyPools {
		assert.Equal(t, v1alpha1.NotReadyFailure, p.Info.Type, p.Pool.Name)
	}

	// Drift is repaired, and pools scale, while the roll-out has stopped; a new pool is created.
	r.node("node-e", v1alpha1.LabelNodePool, "e")
	r.patch("edge",
		`{"spec": {"ingress_controller_image": "`+traefik+`:slow", "pools": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}}`)
	r.eventually(func() (string, bool) { got := image(r.deployment("a")); return got, got == traefik+":slow" }, "another image starts over")
	r.await("edge", "a", conditionR, "False Progressing")
	r.await("edge", "c", v1alpha1.ConditionProgrammed, "False Waiting")
	time.Sleep(quiet)
	for _, pool := range pools[1:] {
		assert.Equal(t, traefik+":v1", image(r.deployment(pool)), pool)
	}

	changes, err := r.kube.AppsV1().Deployments(namespace).Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer changes.Stop()
	r.patch("edge", `{"spec": {"ingress_controller_image": "`+traefik+`:v2"}}`)
	var order []string
	timeout := time.After(kubetest.Patience)
	for len(order) < len(pools) {
		select {
		case event := <-changes.ResultChan():
			d, ok := event.Object.(*appsv1.Deployment)
			require.True(t, ok)
			if pool := d.Labels[v1alpha1.LabelPool]; image(d) == traefik+":v2" && !slices.Contains(order, pool) {
				order = append(order, pool)
			}
		case <-timeout:
			require.Fail(t, "not all pools have the image", "%v\n%s", order, r.log())
		}
	}
	assert.Equal(t, []string{"a", "c", "d", "b"}, order)
	for _, pool := range pools {
		r.await("edge", pool, conditionR, ready)
	}

	r.patch("edge",
		`{"spec": {"updateStrategy": {"paused": true}, "ingress_controller_image": "`+traefik+
			`:v3", "ingress_controller_replicas_per_pool": 2}}`)
	r.await("edge", "a", v1alpha1.ConditionProgrammed, "False Paused")
	time.Sleep(quiet)
	for _, pool := range pools {
		assert.Equal(t, traefik+":v2", image(r.deployment(pool)), pool)
	}
	r.patch("edge", `{"spec": {"updateStrategy": {"paused": false, "maxUnavailablePools": 4}}}`)
	for _, pool := range pools {
		r.eventually(func() (string, bool) {
			got := image(r.deployment(pool))
			return got, got == traefik+":v3"
		}, "the roll-out of %s goes on", pool)
	}
	r.settled("edge")
}
