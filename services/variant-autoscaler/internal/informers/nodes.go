package informers

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unique"

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
	n.Labels = nodeLabels(f)
	n.Unschedulable = f.flagAt("spec", "unschedulable")
	taints := f.listAt("spec", "taints")
	n.Ready = f.conditionAt("Ready").object["status"] == "True" && len(taints) <= maxTaints
	for _, t := range taints[:min(len(taints), maxTaints)] {
		entry := itemOf(t)
		n.Taints = append(n.Taints, inventory.Taint{Key: entry.textAt("key"), Value: entry.textAt("value"), Effect: entry.textAt("effect")})
	}
	return n
}

// nodeLabels returns the labels of a node. Nodes share their texts.
func nodeLabels(f *fields) map[string]string {
	object, _ := f.value("metadata", "labels").(map[string]any)
	labels := make(map[string]string, min(len(object), maxNodeLabels))
	for _, key := range firstKeys(object, maxNodeLabels) {
		if value, ok := object[key].(string); ok {
			labels[unique.Make(strings.Clone(key)).Value()] = unique.Make(strings.Clone(value)).Value()
		}
	}
	return labels
}

// template is a pod template in an object.
type template struct {
	*fields

	path []string
	pods int64 // of a replica
}

// inSpec returns a field of the spec of the pods.
func (t *template) inSpec(field string) any {
	return t.value(append(slices.Clone(t.path), "spec", field)...)
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
		shape.Placement = unique.Make(placements.Key()).Value() // workloads share it
	}
	return shape
}

// requestedCards returns the resource of which a template requests cards. Several resources cannot be read.
func requestedCards(t template) (resource int, cards int64) {
	for r, n := range requestsOf(t.fields, t.path...) {
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
	spec, _ := t.value(append(slices.Clone(t.path), "spec")...).(map[string]any)
	entry := &fields{object: spec}
	read := map[string]any{
		"nodeSelector": spec["nodeSelector"], "tolerations": spec["tolerations"],
		"nodeSelectorTerms": entry.value("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
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
	if n := p.CountTerms(); n > maxTerms {
		return inventory.Placement{Unreadable: fmt.Sprintf("they have %d labels, values and tolerations, and at most %d are possible", n, maxTerms)}
	}
	return p
}
