package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

var at = time.Unix(1000, 0)

func pool(name string, change func(*Pool)) Pool {
	p := Pool{
		Plan: &plan.Pool{
			Name: name, Class: name, Owned: true, Addresses: []string{"192.0.2.1"}, Observed: plan.Observed{Nodes: 2, ReadyNodes: 1},
		},
		Readiness: plan.Readiness{Exists: true, Ready: true, Reason: v1alpha1.ReasonReady},
	}
	if change != nil {
		change(&p)
	}
	return p
}

func TestBuild(t *testing.T) {
	t.Parallel()
	object := &v1alpha1.YurtIngress{ObjectMeta: metav1.ObjectMeta{Generation: 4}}
	starting := plan.Readiness{Exists: true, Reason: v1alpha1.ReasonProgressing, Message: "0 of 1"}
	quota := plan.Readiness{
		Exists: true, Reason: v1alpha1.ReasonReplicaFailure, Message: strings.Repeat("pods are forbidden, says a long webhook; ", 2000),
	}
	in := &Input{Object: object, Now: at, Settings: plan.Settings{Replicas: 2, Profile: "traefik"}, Image: "i", Pools: []Pool{
		pool("ready", nil),
		pool("starting", func(p *Pool) { p.Readiness = starting }),
		pool("refused", func(p *Pool) {
			p.Plan.Problem = &plan.Problem{Reason: v1alpha1.ReasonPoolConflict, Message: "other"}
			p.Plan.Owned = false
		}),
		pool("unwritten", func(p *Pool) {
			p.Failure = &plan.Problem{Reason: v1alpha1.ReasonNotWritten, Message: strings.Repeat("é", 2000)}
		}),
		pool("waiting", func(p *Pool) { p.Plan.Deferral.Reason = v1alpha1.ReasonWaiting }),
		pool("offline", func(p *Pool) { p.Readiness = starting; p.Plan.Observed.ReadyNodes = 0 }),
		pool("quota", func(p *Pool) { p.Readiness = quota }),
		pool("offline with a quota", func(p *Pool) { p.Readiness = quota; p.Plan.Observed.ReadyNodes = 0 }),
		{Removing: "removed"},
		{Removing: "remains", Failure: &plan.Problem{Reason: v1alpha1.ReasonNotWritten, Message: quota.Message}},
	}}
	s := Build(in)
	assert.Equal(t, int64(4), s.ObservedGeneration)
	assert.Equal(t, int32(2), s.Replicas)
	assert.Equal(t, []string{"ready"}, s.Conditions.ReadyPools)
	assert.Equal(t, int32(1), s.ReadyNum)
	assert.Equal(t, int32(7), s.UnreadyNum, "pools of the specification")
	types, reasons := map[string]string{}, map[string]string{}
	for _, p := range s.Conditions.UnreadyPools {
		types[p.Pool.Name], reasons[p.Pool.Name] = p.Info.Type, p.Info.Reason
		assert.Equal(t, []string{"192.0.2.1"}, p.Pool.IngressIPs)
	}
	assert.Equal(t,
		map[string]string{
			"starting": "Pending", "refused": "Failure", "unwritten": "Failure", "waiting": "Pending", "offline": "Pending",
			"quota": "Failure", "offline with a quota": "Pending",
		},
		types)
	assert.Equal(t, map[string]string{
		"starting": "Progressing", "refused": "PoolConflict", "unwritten": "NotWritten", "waiting": "Waiting", "offline": "NoReadyNodes",
		"quota": "ReplicaFailure", "offline with a quota": "NoReadyNodes",
	}, reasons)
	require.Len(t, s.Pools, 10)
	for _, p := range s.Pools {
		for _, c := range p.Conditions {
			assert.LessOrEqual(t, len(c.Message), maxMessage)
			assert.Equal(t, int64(4), c.ObservedGeneration)
		}
	}
	assert.Empty(t, s.Pools[2].IngressClassName, "the class is another one's")
	whole := meta.FindStatusCondition(s.ObjectConditions, v1alpha1.ConditionReady)
	assert.Equal(t, "failed: refused, unwritten, quota; pending: starting, waiting, offline, offline with a quota", whole.Message)
	assert.Len(t, Changes(&v1alpha1.YurtIngressStatus{}, &s), 6)
	assert.Empty(t, Changes(&s, &s))

	object.Status = s
	in.Now = at.Add(time.Hour)
	next := Build(in)
	assert.True(t, Equal(&s, &next), "time alone changes nothing")
	in.Pools[1] = pool("starting", nil)
	next = Build(in)
	assert.Equal(t, in.Now.Unix(), meta.FindStatusCondition(next.Pools[1].Conditions, v1alpha1.ConditionReady).LastTransitionTime.Unix())
	assert.Equal(t, at.Unix(), meta.FindStatusCondition(next.Pools[0].Conditions, v1alpha1.ConditionReady).LastTransitionTime.Unix())
	assert.Equal(t, []Change{{Reason: "Ready", Message: "pool starting: "}}, Changes(&s, &next))
}

func TestWhole(t *testing.T) {
	t.Parallel()
	in := &Input{
		Object: &v1alpha1.YurtIngress{}, Now: at,
		Settings: plan.Settings{Problems: []plan.Problem{{Reason: "Invalid", Message: "a"}, {Reason: "NotAllowed", Message: "b"}}},
	}
	s := Build(in)
	assert.Equal(t, "a; b", meta.FindStatusCondition(s.ObjectConditions, v1alpha1.ConditionAccepted).Message)
	assert.Equal(t, metav1.ConditionFalse, meta.FindStatusCondition(s.ObjectConditions, v1alpha1.ConditionReady).Status)
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprint(i))
	}
	assert.Equal(t, "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more", plan.JoinNames(many, maxNames))

	in = &Input{Object: &v1alpha1.YurtIngress{}, Now: at, Settings: plan.Settings{Notes: []string{"x has no effect"}}}
	s = Build(in)
	assert.Equal(t, []Change{{Reason: v1alpha1.ReasonFieldIgnored, Message: "x has no effect", Failed: true}},
		Changes(&v1alpha1.YurtIngressStatus{}, &s))
	replaced := ReplaceCondition(s.ObjectConditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "x",
	}, at)
	assert.Len(t, replaced, 2)
	assert.Len(t, ReplaceCondition(nil, metav1.Condition{Type: v1alpha1.ConditionReady}, at), 1)
}
