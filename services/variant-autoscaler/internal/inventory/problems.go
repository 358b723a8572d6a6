package inventory

import "fmt"

// Problem is why the nodes of a variant are not known. The variant keeps its replicas.
type Problem struct{ Reason, Message string }

// Reasons of problems.
const (
	// InventoryInvalid: a node that the variant could use, or a pod on it, has a number of cards that cannot be true. Remedy: correct it, or
	// cordon the node.
	InventoryInvalid = "InventoryInvalid"
	// InvalidConfiguration: what the pod template says of nodes cannot be read. Remedy: correct the template.
	InvalidConfiguration = "InvalidConfiguration"
	// LimitExceeded: there are too many node sets. Remedy: use the same nodeSelector in several variants.
	LimitExceeded = "LimitExceeded"
)

func unreadableNode(n *Node, resource string) *Problem {
	return &Problem{Reason: InventoryInvalid, Message: fmt.Sprintf(
		"node %s, or a pod on it, has a number of %s that cannot be true: correct it (at most %d are believed), or cordon the node", n.Name, resource, MaxNodeCards)}
}
