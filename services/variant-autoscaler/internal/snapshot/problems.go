package snapshot

import "fmt"

// Problem says why a variant is not part of the choice.
type Problem struct {
	Reason  string `json:"reason"`
	Message string `json:"message"` // what happened, and what to do
}

// NewProblem returns a problem with a formatted message.
func NewProblem(reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Reasons of problems. A variant with one of the first three is in Result.Rejected: nothing is decided for it. The others exclude a
// variant from the choice, and it keeps its replicas.
const (
	// TargetConflict: another object has the same target. A VariantAutoscaling comes before a ScaledObject, and that before a
	// HorizontalPodAutoscaler; of the same kind, the oldest. Remedy: delete one of them, or remove the annotation llm-d.ai/managed.
	TargetConflict = "TargetConflict"
	// NameConflict: an object of another kind has the same name, so their metrics would be the same series. The order is that of
	// TargetConflict. Remedy: rename one of them.
	NameConflict = "NameConflict"
	// LimitExceeded: the namespace, or all together, have too many variants, and this one is among the newest (rejected); a number is
	// larger than any that the optimizer accepts (note, or problem if it is a minimum); or the namespaces have too many limits, and this
	// one is among the newest (problem). Remedy: delete variants, use smaller numbers, or limit fewer namespaces.
	LimitExceeded = "LimitExceeded"

	// TargetNotFound: the target does not exist. Remedy: create it, or correct scaleTargetRef.
	TargetNotFound = "TargetNotFound"
	// UnsupportedTarget: the kind of the target has no scale subresource that this program may read, or the cluster does not have it.
	// Remedy: use a Deployment, a StatefulSet, a LeaderWorkerSet or a kind with a scale subresource, or install the CRD. With
	// --actuator=scale also: OME has the replicas of the target. Remedy: the annotation ome.io/autoscalerClass: external on the
	// InferenceService of a Deployment.
	UnsupportedTarget = "UnsupportedTarget"
	// InvalidConfiguration: a field or annotation has no usable value. Remedy: the message names the field, and what it may have.
	InvalidConfiguration = "InvalidConfiguration"
	// UnknownAccelerator: the prices of accelerators have no entry for the one of this variant, but for others of its group. Remedy: add it
	// to the ConfigMap accelerator-unit-costs, or set the cost of every variant of the model.
	UnknownAccelerator = "UnknownAccelerator"
	// TargetOwnedByAutoscaler: a HorizontalPodAutoscaler or a ScaledObject scales the target, and does not follow this program. A problem
	// only with --actuator=scale. Remedy: delete it, or let it follow the metric.
	TargetOwnedByAutoscaler = "TargetOwnedByAutoscaler"
	// TargetOwnedByController: an object such as an InferenceService of KServe controls the target, and would undo a change of its
	// replicas. A problem only with --actuator=scale. Remedy: scale that object, or let an autoscaler follow the metric.
	TargetOwnedByController = "TargetOwnedByController"
	// UnsupportedRole: the pods have a role that is not known, that computes no tokens, such as encode, or they have several roles. Remedy:
	// set the label llm-d.ai/role of the pod template to prefill, decode or both, or declare a variant for the target of each role.
	UnsupportedRole = "UnsupportedRole"
	// RoleMismatch: servers with the role prefill answer requests themselves. Remedy: correct the label llm-d.ai/role of the pod template,
	// or let the picker send them prefills only.
	RoleMismatch = "RoleMismatch"
	// MetricTypeValue: the autoscaler multiplies its present replicas by the wanted ones. Remedy: metricType AverageValue.
	MetricTypeValue = "MetricTypeValue"
	// Paused: KEDA is told not to scale the target, which has no replicas (problem), or keeps some (note). Remedy: remove the annotations
	// autoscaling.keda.sh/paused of the ScaledObject.
	Paused = "Paused"
	// InventoryUnknown: the limiter is on, and nodes cannot be listed, or the objects of Kueue for a workload that it manages. Remedy:
	// grant the permission that the message names, or turn the limiter off.
	InventoryUnknown = "InventoryUnknown"
	// InventoryInvalid: a node that the variant could use, or a pod on it, or a quota of Kueue, has a number of cards that cannot be true.
	// Remedy: correct it, or cordon the node.
	InventoryInvalid = "InventoryInvalid"
	// QueueNotFound, QueueInactive and QuotaMissing: Kueue would admit no pod of the variant. Remedy: the message names the LocalQueue or
	// the ClusterQueue.
	QueueNotFound = "QueueNotFound"
	QueueInactive = "QueueInactive"
	QuotaMissing  = "QuotaMissing"
	// DevicesNotFound and DevicesUnsupported: the devices that the pods claim cannot be counted. Remedy: the message says it.
	DevicesNotFound    = "DevicesNotFound"
	DevicesUnsupported = "DevicesUnsupported"
)

// Reasons of notes, besides LimitExceeded.
const (
	// ConflictResolved: the variant decides for a target that other objects have too. Remedy: as for TargetConflict.
	ConflictResolved = "ConflictResolvedByArbitration"
	// SeveralPools: more than one InferencePool selects the pods; the load is that of the oldest. Remedy: make the selectors disjoint.
	SeveralPools = "SeveralPools"
	// IdleReplicas: KEDA knows no replicas between idleReplicaCount and minReplicaCount: it runs the minimum instead. Remedy: none
	// needed; a minimum of 1 avoids it.
	IdleReplicas = "IdleReplicas"
	// NotLimited: the limiter is on, and the pod template requests no accelerators, or several kinds of them, or is not known. Remedy:
	// request the cards of one resource.
	NotLimited = "NotLimited"
	// ZeroUnreachable: the model may have no replicas, but the controller of the target keeps one. Remedy: the message says it for the
	// controller.
	ZeroUnreachable = "ZeroUnreachable"
)
