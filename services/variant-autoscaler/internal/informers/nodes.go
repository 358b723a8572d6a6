package informers

import (
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

// Node is a node. One without accelerators may have devices, which only ResourceSlices say.
type Node struct {
	Identity
	inventory.Node
}

const (
	// maxNodeLabels is the largest number of labels of a node that count. Feature discoveries set two hundred. Beyond it, the first by name
	// count.
	maxNodeLabels = 1000
	// maxTaints is the largest number of taints of a node that are read. A node with more is never used: usual nodes have one or two.
	maxTaints = 100
	// maxTerms bounds the terms, requirements, values and tolerations of a pod template.
	maxTerms = 100
)

func readNode(u *unstructured.Unstructured) any {
	n, f := &Node{Identity: identityOf(u)}, newFields(u)
	for r, name := range inventory.Resources {
		n.Allocatable[r] = readCards(f.value("status", "allocatable", name))
	}
	n.Node.Name = n.Identity.Name
	n.Labels = f.labelsAt(maxNodeLabels, "metadata", "labels")
	n.Unschedulable = f.flagAt("spec", "unschedulable")
	taints := f.listAt("spec", "taints")
	n.Ready = f.conditionAt("Ready").object["status"] == "True" && len(taints) <= maxTaints
	for _, t := range taints[:min(len(taints), maxTaints)] {
		n.Taints = append(n.Taints, taintOf(itemOf(t)))
	}
	return n
}

func taintOf(entry *fields) corev1.Taint {
	return corev1.Taint{Key: entry.textAt("key"), Value: entry.textAt("value"), Effect: corev1.TaintEffect(entry.textAt("effect"))}
}

// template is a pod template: it has the fields of a pod.
type template struct {
	*fields

	pods int64 // of a replica
}

// shapeOf returns what the pods of a replica request. Pods of different sizes count as if all had the larger one.
func shapeOf(templates []template) inventory.Shape {
	var shape inventory.Shape
	var placements inventory.Placements
	for _, t := range templates {
		resource, cards := requestedCards(t)
		switch {
		case cards == UnreadableCards || cards > 0 && shape.Cards > 0 && resource != shape.Resource:
			return inventory.Shape{}
		case cards > 0:
			shape.Resource, shape.Cards, shape.Pods = resource, max(shape.Cards, cards), shape.Pods+t.pods
			placements = append(placements, placementOf(t))
		}
	}
	if len(placements) > 0 {
		shape.Placement = internText(placements.Key()) // workloads share it
	}
	return shape
}

// requestedCards returns the resource of which a template requests cards. Several resources cannot be read.
func requestedCards(t template) (resource int, cards int64) {
	for r, n := range requestsOf(t.fields) {
		switch {
		case n == UnreadableCards || n > 0 && cards > 0:
			return 0, UnreadableCards
		case n > 0:
			resource, cards = r, n
		}
	}
	return resource, cards
}

// placementOf returns what a template says of nodes.
func placementOf(t template) inventory.Placement {
	spec := itemOf(t.value("spec"))
	read := map[string]any{
		"nodeSelector": spec.object["nodeSelector"], "tolerations": spec.object["tolerations"],
		"nodeSelectorTerms": spec.value("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
	}
	maps.DeleteFunc(read, func(_ string, value any) bool { return value == nil })
	var p inventory.Placement
	text, err := json.Marshal(read)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return inventory.Placement{Unreadable: "a field has a value of the wrong type"}
	}
	for i := range p.Tolerations {
		p.Tolerations[i].TolerationSeconds = nil // it is about pods that are on a node already
	}
	if n := p.CountTerms(); n > maxTerms {
		return inventory.Placement{Unreadable: fmt.Sprintf("they have %d labels, values and tolerations, and at most %d are possible", n, maxTerms)}
	}
	return p
}
