package inventory

import "fmt"

// Problem is why the nodes or quotas of a variant are not known. The variant keeps its replicas.
type Problem struct{ Reason, Message string }

// Reasons of problems.
const (
	// InventoryUnknown: nodes, or the objects of Kueue for a workload that it manages, cannot be read. Remedy: grant the permission, or
	// turn the limiter off.
	InventoryUnknown = "InventoryUnknown"
	// InventoryInvalid: a node that the variant could use, or a pod on it, has a number of cards that cannot be true, or a quota of its
	// ClusterQueue or Cohort. Remedy: correct it, or cordon the node.
	InventoryInvalid = "InventoryInvalid"
	// InvalidConfiguration: what the pod template says of nodes cannot be read. Remedy: correct the template.
	InvalidConfiguration = "InvalidConfiguration"
	// LimitExceeded: there are too many node sets. Remedy: use the same nodeSelector in several variants.
	LimitExceeded = "LimitExceeded"
	// QueueNotFound: the LocalQueue that the workload names, or its ClusterQueue, does not exist. Remedy: create it, or correct the label.
	QueueNotFound = "QueueNotFound"
	// QueueInactive: the LocalQueue or the ClusterQueue is stopped, or not active. Remedy: start it.
	QueueInactive = "QueueInactive"
	// QuotaMissing: the ClusterQueue has no quota that the pod template can use. Remedy: add a flavor, or use another LocalQueue.
	QuotaMissing = "QuotaMissing"
	// DevicesNotFound: the ResourceClaimTemplate of the pods, or its DeviceClass, does not exist. Remedy: create it, or correct the name.
	DevicesNotFound = "DevicesNotFound"
	// DevicesUnsupported: the pods request devices in a way that this program cannot count. Remedy: the message says what it counts.
	DevicesUnsupported = "DevicesUnsupported"
)

func inactiveQueue(queue, why string) *Problem {
	return &Problem{Reason: QueueInactive, Message: fmt.Sprintf("%s admits no pods: %s", queue, why)}
}

func unreadableNode(n *Node, resource string) *Problem {
	return &Problem{Reason: InventoryInvalid, Message: fmt.Sprintf(
		"node %s, or a pod on it, has a number of %s that cannot be true: correct it (at most %d are believed), or cordon the node", n.Name, resource, MaxNodeCards)}
}
