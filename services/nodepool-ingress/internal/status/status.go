// Package status builds the status of a YurtIngress. It is pure.
package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/pkg/apis/openyurt/v1alpha1"
	"fairlead.dev/pkg/conditions"
	"fairlead.dev/services/nodepool-ingress/internal/plan"
)

// maxNames is the number of pools that the message of a condition of the whole object names.
const maxNames = 10

// Pool is the result of a reconcile for a pool.
type Pool struct {
	Plan      *plan.Pool
	Readiness plan.Readiness // after the apply
	Failure   *plan.Problem  // an object could not be written
	Addresses []string       // of the Service
	Removing  string         // a pool that is being removed, without a Plan
}

// Input is the input of Build.
type Input struct {
	Object   *v1alpha1.YurtIngress
	Settings plan.Settings
	Image    string // of pools without an image of their own
	Pools    []Pool
	Failure  *plan.Problem // of the object itself
	Now      time.Time

	earlier map[string][]metav1.Condition // conditions of pools
	unready map[string]*v1alpha1.IngressNotReadyInfo
}

// Build returns the next status.
func Build(in *Input) v1alpha1.YurtIngressStatus {
	in.indexPrevious(&in.Object.Status)
	next := v1alpha1.YurtIngressStatus{
		ObservedGeneration: in.Object.Generation, Replicas: in.Settings.Replicas, Image: in.Image, Profile: in.Settings.Profile,
	}
	var waiting, failed []string
	for i := range in.Pools {
		p := in.poolStatus(&in.Pools[i])
		next.Pools = append(next.Pools, p)
		if in.Pools[i].Plan == nil {
			continue // the legacy fields are about pools of the specification
		}
		ready := meta.FindStatusCondition(p.Conditions, v1alpha1.ConditionReady)
		if ready.Status == metav1.ConditionTrue {
			next.ReadyNum++
			next.Conditions.ReadyPools = append(next.Conditions.ReadyPools, p.Name)
			continue
		}
		next.UnreadyNum++
		info := in.notReadyInfo(p.Name, ready)
		if info.Type == v1alpha1.NotReadyFailure {
			failed = append(failed, p.Name)
		} else {
			waiting = append(waiting, p.Name)
		}
		next.Conditions.UnreadyPools = append(next.Conditions.UnreadyPools, v1alpha1.IngressNotReadyPool{
			Pool: v1alpha1.NotReadyPoolReference{Name: p.Name, IngressIPs: in.Pools[i].Plan.Addresses}, Info: info,
		})
	}
	next.ObjectConditions = in.objectConditions(waiting, failed)
	return next
}

// objectConditions returns the conditions of the YurtIngress itself.
func (in *Input) objectConditions(waiting, failed []string) []metav1.Condition {
	accepted := newTrue(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, strings.Join(in.Settings.Notes, "; "))
	if len(in.Settings.Problems) > 0 {
		setFalse(in.Settings.Problems[0].Reason, joinMessages(in.Settings.Problems), &accepted)
	}
	ready := newTrue(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "all pools are ready")
	switch {
	case in.Failure != nil:
		setFalse(in.Failure.Reason, in.Failure.Message, &ready)
	case accepted.Status == metav1.ConditionFalse:
		setFalse(accepted.Reason, accepted.Message, &ready)
	case len(waiting)+len(failed) > 0:
		var parts []string
		if len(failed) > 0 {
			parts = append(parts, "failed: "+plan.JoinNames(failed, maxNames))
		}
		if len(waiting) > 0 {
			parts = append(parts, "pending: "+plan.JoinNames(waiting, maxNames))
		}
		setFalse(v1alpha1.ReasonPoolsNotReady, strings.Join(parts, "; "), &ready)
	}
	return in.completeConditions(in.Object.Status.ObjectConditions, accepted, ready)
}

func joinMessages(problems []plan.Problem) string {
	var messages []string
	for _, p := range problems {
		messages = append(messages, p.Message)
	}
	return strings.Join(messages, "; ")
}

// poolStatus returns the status of a pool.
func (in *Input) poolStatus(p *Pool) v1alpha1.PoolStatus {
	if p.Plan == nil {
		return in.removedPoolStatus(p)
	}
	s := v1alpha1.PoolStatus{
		Name: p.Plan.Name, Image: p.Readiness.Image, Nodes: nodeCount(p.Plan.Observed.Nodes),
		ReadyNodes: nodeCount(p.Plan.Observed.ReadyNodes), Replicas: p.Plan.Replicas, ReadyReplicas: p.Readiness.ReadyReplicas,
		Addresses: p.Addresses,
	}
	if p.Plan.Owned {
		s.IngressClassName = p.Plan.Class
	}
	accepted := newTrue(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "")
	programmed := newTrue(v1alpha1.ConditionProgrammed, v1alpha1.ReasonProgrammed, "")
	ready := newTrue(v1alpha1.ConditionReady, p.Readiness.Reason, p.Readiness.Message)
	switch {
	case p.Plan.Problem != nil:
		setFalse(p.Plan.Problem.Reason, p.Plan.Problem.Message, &accepted, &programmed, &ready)
	case in.Failure != nil:
		setFalse(in.Failure.Reason, in.Failure.Message, &programmed, &ready)
	case p.Failure != nil:
		setFalse(p.Failure.Reason, p.Failure.Message, &programmed, &ready)
	case p.Plan.Deferral.Reason != "":
		setFalse(p.Plan.Deferral.Reason, p.Plan.Deferral.Message, &programmed, &ready)
	case p.Readiness.Ready:
	case p.Plan.IsOffline():
		setFalse(v1alpha1.ReasonNoReadyNodes,
			fmt.Sprintf("0 of %d nodes of the pool are ready; %s", p.Plan.Observed.Nodes, p.Readiness.Message), &ready)
	default:
		setFalse(p.Readiness.Reason, p.Readiness.Message, &ready)
	}
	s.Conditions = in.completeConditions(in.earlier[s.Name], accepted, programmed, ready)
	return s
}

func (in *Input) removedPoolStatus(p *Pool) v1alpha1.PoolStatus {
	programmed := metav1.Condition{Type: v1alpha1.ConditionProgrammed}
	setFalse(v1alpha1.ReasonRemoving, "the objects of the pool are being deleted", &programmed)
	if p.Failure != nil {
		setFalse(p.Failure.Reason, p.Failure.Message, &programmed)
	}
	return v1alpha1.PoolStatus{Name: p.Removing, Conditions: in.completeConditions(in.earlier[p.Removing], programmed)}
}

// maxMessage bounds the messages of conditions, which can contain answers of webhooks: 500 pools must fit into an object.
const maxMessage = 512

func newTrue(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

func setFalse(reason, message string, targets ...*metav1.Condition) {
	for _, c := range targets {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
	}
}

// completeConditions completes conditions of this generation.
func (in *Input) completeConditions(before []metav1.Condition, next ...metav1.Condition) []metav1.Condition {
	for i := range next {
		next[i].Message = conditions.TruncateMessage(next[i].Message, maxMessage)
		next[i].ObservedGeneration = in.Object.Generation
		next[i] = conditions.Set(meta.FindStatusCondition(before, next[i].Type), next[i], in.Now)
	}
	return next
}

// poolConditions returns the conditions of pools, by name.
func poolConditions(s *v1alpha1.YurtIngressStatus) map[string][]metav1.Condition {
	byPool := map[string][]metav1.Condition{}
	for i := range s.Pools {
		byPool[s.Pools[i].Name] = s.Pools[i].Conditions
	}
	return byPool
}

// indexPrevious finds the state of pools in the previous status.
func (in *Input) indexPrevious(before *v1alpha1.YurtIngressStatus) {
	in.earlier, in.unready = poolConditions(before), map[string]*v1alpha1.IngressNotReadyInfo{}
	for i := range before.Conditions.UnreadyPools {
		in.unready[before.Conditions.UnreadyPools[i].Pool.Name] = before.Conditions.UnreadyPools[i].Info
	}
}

// failures are the reasons of pools that do not become ready until a user acts.
var failures = []string{
	v1alpha1.ReasonInvalid, v1alpha1.ReasonFieldConflict, v1alpha1.ReasonNotAllowed, v1alpha1.ReasonLimitExceeded,
	v1alpha1.ReasonPoolConflict, v1alpha1.ReasonNameConflict, v1alpha1.ReasonInvalidManifest, v1alpha1.ReasonNotWritten,
	v1alpha1.ReasonAdmissionRejected, v1alpha1.ReasonStopped, v1alpha1.ReasonDeadlineExceeded, v1alpha1.ReasonReplicaFailure,
}

// IsFailure reports whether a pool with a reason of the condition Ready needs a user to act.
func IsFailure(reason string) bool { return slices.Contains(failures, reason) }

// notReadyInfo returns the legacy information about a pool that is not ready.
func (in *Input) notReadyInfo(pool string, ready *metav1.Condition) *v1alpha1.IngressNotReadyInfo {
	info := &v1alpha1.IngressNotReadyInfo{
		Type: v1alpha1.NotReadyPending, Reason: ready.Reason, Message: ready.Message,
		LastTransitionTime: metav1.NewTime(in.Now.UTC().Truncate(time.Second)),
	}
	if IsFailure(ready.Reason) {
		info.Type = v1alpha1.NotReadyFailure
	}
	if old := in.unready[pool]; old != nil && old.Type == info.Type {
		info.LastTransitionTime = old.LastTransitionTime
	}
	return info
}

// nodeCount converts a number of nodes.
func nodeCount(n int) int32 {
	return int32(min(n, 1<<30))
}

// ReplaceCondition replaces a condition in a list.
func ReplaceCondition(current []metav1.Condition, next metav1.Condition, now time.Time) []metav1.Condition {
	next.Message = conditions.TruncateMessage(next.Message, maxMessage)
	meta.SetStatusCondition(&current, conditions.Set(meta.FindStatusCondition(current, next.Type), next, now))
	return current
}

// Equal reports whether two statuses are equal.
func Equal(a, b *v1alpha1.YurtIngressStatus) bool { return equality.Semantic.DeepEqual(a, b) }

// Change is a change of the condition Ready of a pool, or of the whole object.
type Change struct {
	Reason  string
	Message string
	Failed  bool
}

// Changes returns the changes that deserve an Event: a pool became ready, needs a user to act, or has another reason.
func Changes(before, next *v1alpha1.YurtIngressStatus) []Change {
	var changes []Change
	earlier := poolConditions(before)
	for i := range next.Pools {
		p := &next.Pools[i]
		ready := meta.FindStatusCondition(p.Conditions, v1alpha1.ConditionReady)
		old := meta.FindStatusCondition(earlier[p.Name], v1alpha1.ConditionReady)
		if ready == nil || !conditionChanged(old, ready) { // without the condition, the pool is being removed
			continue
		}
		c := Change{
			Reason: ready.Reason, Message: "pool " + p.Name + ": " + ready.Message,
			Failed: ready.Status != metav1.ConditionTrue && IsFailure(ready.Reason),
		}
		if ready.Status == metav1.ConditionTrue || c.Failed || slices.Contains(waitingReasons, ready.Reason) {
			changes = append(changes, c)
		}
	}
	return append(changes, objectChanges(before.ObjectConditions, next.ObjectConditions)...)
}

// waitingReasons are the reasons of pools that wait for a user, without a failure.
var waitingReasons = []string{v1alpha1.ReasonPoolNotFound, v1alpha1.ReasonNoReadyNodes}

func conditionChanged(old, next *metav1.Condition) bool {
	return old == nil || old.Status != next.Status || old.Reason != next.Reason
}

// objectChanges returns the changes of the conditions of the YurtIngress itself, without those that only summarize its pools.
func objectChanges(before, next []metav1.Condition) []Change {
	var changes []Change
	if c := meta.FindStatusCondition(next, v1alpha1.ConditionReady); c != nil && c.Status == metav1.ConditionFalse &&
		c.Reason != v1alpha1.ReasonPoolsNotReady && conditionChanged(meta.FindStatusCondition(before, c.Type), c) {
		changes = append(changes, Change{Reason: c.Reason, Message: c.Message, Failed: true})
	}
	if c := meta.FindStatusCondition(next, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionTrue && c.Message != "" {
		if old := meta.FindStatusCondition(before, c.Type); old == nil || old.Message != c.Message {
			changes = append(changes, Change{Reason: v1alpha1.ReasonFieldIgnored, Message: c.Message, Failed: true})
		}
	}
	return changes
}
