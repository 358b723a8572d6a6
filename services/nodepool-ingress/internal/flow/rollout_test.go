package flow

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
)

// TestRollout rolls a bad image out to four pools: the first one fails, and the others keep the old image. The correct image reaches all, one
// after the other, and the pool without a ready node last.
func TestRollout(t *testing.T) {
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
	r.patch("edge", `{"spec": {"ingress_controller_image": "`+traefik+`:slow", "pools": [{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]}}`)
	r.eventually(func() (string, bool) { got := image(r.deployment("a")); return got, got == traefik+":slow" }, "another image starts over")
	r.await("edge", "a", conditionR, "False Progressing")
	r.await("edge", "c", v1alpha1.ConditionProgrammed, "False Waiting")
	time.Sleep(quiet)
	for _, pool := range pools[1:] {
		assert.Equal(t, traefik+":v1", image(r.deployment(pool)), pool)
	}

	seen := map[string]bool{}
	r.patch("edge", `{"spec": {"ingress_controller_image": "`+traefik+`:v2"}}`)
	var order []string
	r.eventually(func() (string, bool) {
		for _, pool := range pools {
			if image(r.deployment(pool)) == traefik+":v2" && !seen[pool] {
				seen[pool] = true
				order = append(order, pool)
			}
		}
		return fmt.Sprint(order), len(order) == len(pools)
	}, "all pools have the image")
	assert.Equal(t, []string{"a", "c", "d", "b"}, order)
	for _, pool := range pools {
		r.await("edge", pool, conditionR, ready)
	}

	r.patch("edge", `{"spec": {"updateStrategy": {"paused": true}, "ingress_controller_image": "`+traefik+`:v3", "ingress_controller_replicas_per_pool": 2}}`)
	r.await("edge", "a", v1alpha1.ConditionProgrammed, "False Paused")
	time.Sleep(quiet)
	for _, pool := range pools {
		assert.Equal(t, traefik+":v2", image(r.deployment(pool)), pool)
	}
	r.patch("edge", `{"spec": {"updateStrategy": {"paused": false, "maxUnavailablePools": 4}}}`)
	for _, pool := range pools {
		r.eventually(func() (string, bool) { got := image(r.deployment(pool)); return got, got == traefik+":v3" }, "the roll-out of %s goes on", pool)
	}
	r.settled("edge")
}
