package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/ownership"
)

// rolledOut returns a pool whose Deployment was applied with a revision; the wanted one is "new".
func rolledOut(revision string, before Readiness) Pool {
	before.Exists, before.Revision = true, revision
	return Pool{Revision: "new", Observed: Observed{ReadyNodes: 1}, Before: before}
}

func withoutNodes(p Pool) Pool {
	p.Observed.ReadyNodes = 0
	return p
}

func TestRollOut(t *testing.T) {
	t.Parallel()
	const waiting, stopped, paused = v1alpha1.ReasonWaiting, v1alpha1.ReasonStopped, v1alpha1.ReasonPaused
	var (
		absent       = Pool{Revision: "new", Observed: Observed{ReadyNodes: 1}}
		current      = rolledOut("new", Readiness{Ready: true})
		starting     = rolledOut("new", Readiness{})
		failed       = rolledOut("new", Readiness{Failed: true})
		old          = rolledOut("old", Readiness{Ready: true})
		broken       = rolledOut("old", Readiness{})
		brokenFailed = rolledOut("old", Readiness{Failed: true})
		offline      = withoutNodes(broken)
		offlineReady = withoutNodes(old)
		offlineNew   = withoutNodes(failed)
	)
	tests := []struct {
		name  string
		pools []Pool
		max   int32
		pause bool
		want  []string
	}{
		{name: "nothing to do", pools: []Pool{current, starting, failed}, want: []string{"", "", ""}},
		{name: "all are new", pools: []Pool{absent, absent}, want: []string{"", ""}},
		{name: "one after the other", pools: []Pool{old, old, old}, want: []string{"", waiting, waiting}},
		{name: "two at a time", pools: []Pool{old, old, old}, max: 2, want: []string{"", "", waiting}},
		{name: "one has changed and starts", pools: []Pool{starting, old}, want: []string{"", waiting}},
		{name: "one has changed and is ready", pools: []Pool{current, old}, want: []string{"", ""}},
		{name: "one has changed and failed", pools: []Pool{failed, old, broken}, max: 9, want: []string{"", stopped, stopped}},
		{name: "one failed before the change", pools: []Pool{old, brokenFailed}, want: []string{waiting, ""}},
		{name: "pools that serve nothing come first", pools: []Pool{old, broken, old}, want: []string{waiting, "", waiting}},
		{name: "a new pool may need the port of an old one", pools: []Pool{old, absent}, want: []string{"", ""}},
		{name: "pools without nodes come last", pools: []Pool{offline, old}, want: []string{waiting, ""}},
		{name: "pools without nodes come at once", pools: []Pool{offline, offlineReady, current}, want: []string{"", "", ""}},
		{name: "pools without nodes wait for those that start", pools: []Pool{offline, starting}, want: []string{waiting, ""}},
		{name: "a pool without nodes stops nothing", pools: []Pool{offlineNew, old}, want: []string{"", ""}},
		{name: "paused", pools: []Pool{old, absent, current}, pause: true, want: []string{paused, "", ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var pools []*Pool
			for i := range tt.pools {
				tt.pools[i].Name = string(rune('a' + i))
				pools = append(pools, &tt.pools[i])
			}
			scheduleRollout(pools, v1alpha1.UpdateStrategy{MaxUnavailablePools: max(tt.max, 1), Paused: tt.pause})
			var got []string
			for _, p := range pools {
				got = append(got, p.Deferral.Reason)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

// TestHoldsNameThePool: who waits learns for which pools, and what ends the wait.
func TestHoldsNameThePool(t *testing.T) {
	t.Parallel()
	starting, old := rolledOut("new", Readiness{}), rolledOut("old", Readiness{Ready: true})
	named := func(p Pool, name string) *Pool { p.Name = name; return &p }
	message := func(limit int32, pools ...*Pool) string {
		scheduleRollout(pools, v1alpha1.UpdateStrategy{MaxUnavailablePools: limit})
		return pools[len(pools)-1].Deferral.Message
	}
	assert.Equal(t,
		"the roll-out waits until pool a is ready: repair it, set its replicas to 0, or raise updateStrategy.maxUnavailablePools above 1",
		message(1, named(starting, "a"), named(old, "z")))
	assert.Contains(t, message(2, named(starting, "a"), named(starting, "b"), named(old, "z")), "until one of pools a, b is ready")
	var many []*Pool
	for i := range 500 {
		many = append(many, named(starting, strings.Repeat("x", 59)+fmt.Sprint(i)))
	}
	bounded := message(1, append(many, named(old, "z"))...)
	assert.Less(t, len(bounded), 400)
	assert.Contains(t, bounded, "497 more")
	assert.Equal(t, "the roll-out visits other pools first: a", message(1, named(old, "a"), named(old, "z")),
		"the other one changes in this pass")
	assert.Contains(t, message(1, named(starting, "a"), named(withoutNodes(rolledOut("old", Readiness{})), "z")), "until pool a is ready")
	failed := named(rolledOut("new", Readiness{Failed: true}), "a")
	assert.Equal(t, "the roll-out has stopped, because pool a failed: correct the specification, or repair that pool",
		message(1, failed, named(old, "z")))
}

func TestWinner(t *testing.T) {
	t.Parallel()
	at := func(second int64) time.Time { return time.Unix(second, 0) }
	contend := func(name string, uid types.UID, created time.Time) Contender {
		return Contender{Age: ownership.Age{Created: created, Name: types.NamespacedName{Name: name}}, UID: uid}
	}
	young, old := contend("a", "young", at(2)), contend("b", "old", at(1))
	tests := []struct {
		name  string
		claim Claim
		want  types.UID
		found bool
	}{
		{name: "nobody"},
		{name: "the oldest", claim: Claim{Contenders: []Contender{young, old}}, want: "old", found: true},
		{
			name: "the first name of equals", claim: Claim{Contenders: []Contender{contend("z", "1", at(1)), contend("a", "2", at(1))}},
			want: "2", found: true,
		},
		{
			name:  "the owner of the class",
			claim: Claim{Contenders: []Contender{young, old}, Class: Class{Exists: true, Owner: "young"}, Holders: []types.UID{"old"}},
			want:  "young", found: true,
		},
		{
			name:  "an owner that no longer lists the pool",
			claim: Claim{Contenders: []Contender{young}, Class: Class{Exists: true, Owner: "gone"}}, want: "gone", found: true,
		},
		{name: "a class of others", claim: Claim{Contenders: []Contender{old}, Class: Class{Exists: true}}},
		{
			name: "the class was deleted", claim: Claim{Contenders: []Contender{young, old}, Holders: []types.UID{"young"}}, want: "young",
			found: true,
		},
		{
			name: "objects of one that is gone", claim: Claim{Contenders: []Contender{old}, Holders: []types.UID{"gone"}}, want: "gone",
			found: true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, found := tt.claim.ChooseWinner()
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.found, found)
		})
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	deployment := func(replicas int64, status m) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: m{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": m{"name": "d", "generation": int64(2)},
			"spec": m{"replicas": replicas, "template": m{"spec": m{"containers": []any{m{"name": "c", "image": "i"}}}}}, "status": status,
		}}
	}
	status := func(observed, all, updated, available int64, conditions ...any) m {
		return m{
			"observedGeneration": observed, "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
			"readyReplicas": available, "conditions": conditions,
		}
	}
	deadline := m{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "late"}
	quota := m{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota"}
	tests := []struct {
		name   string
		object *unstructured.Unstructured
		ready  bool
		failed bool
		reason string
	}{
		{name: "none", reason: v1alpha1.ReasonProgressing},
		{name: "all", object: deployment(2, status(2, 2, 2, 2)), ready: true, reason: v1alpha1.ReasonReady},
		{name: "of an older generation", object: deployment(2, status(1, 2, 2, 2)), reason: v1alpha1.ReasonProgressing},
		{name: "an older failure", object: deployment(2, status(1, 2, 1, 1, deadline)), reason: v1alpha1.ReasonProgressing},
		{name: "an old pod remains", object: deployment(1, status(2, 2, 1, 1)), reason: v1alpha1.ReasonProgressing},
		{name: "not up to date", object: deployment(1, status(2, 1, 0, 1)), reason: v1alpha1.ReasonProgressing},
		{name: "not available", object: deployment(1, status(2, 1, 1, 0)), reason: v1alpha1.ReasonProgressing},
		{name: "no replicas", object: deployment(0, status(2, 0, 0, 0)), ready: true, reason: v1alpha1.ReasonScaledToZero},
		{name: "no replicas, but pods", object: deployment(0, status(2, 1, 0, 1)), reason: v1alpha1.ReasonProgressing},
		{name: "late", object: deployment(1, status(2, 2, 1, 1, deadline)), failed: true, reason: v1alpha1.ReasonDeadlineExceeded},
		{name: "quota", object: deployment(1, status(2, 0, 0, 0, deadline, quota)), failed: true, reason: v1alpha1.ReasonReplicaFailure},
		{
			name: "an old condition of a ready one", object: deployment(1, status(2, 1, 1, 1, deadline)), ready: true,
			reason: v1alpha1.ReasonReady,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := EvaluateReadiness(tt.object)
			assert.Equal(t, tt.ready, got.Ready)
			assert.Equal(t, tt.failed, got.Failed)
			assert.Equal(t, tt.reason, got.Reason)
		})
	}
}
