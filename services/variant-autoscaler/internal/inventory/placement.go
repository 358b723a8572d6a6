package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxPlacement is the largest size of what pod templates say of nodes, in bytes. Usual templates have some hundred.
const maxPlacement = 16 << 10

// Placement is what a pod template says of nodes. Names in JSON are those of the API.
type Placement struct {
	Selector map[string]string `json:"nodeSelector,omitempty"`
	// Terms are those of the required node affinity, of which a node must match one. Empty: there is none.
	Terms       []corev1.NodeSelectorTerm `json:"nodeSelectorTerms,omitempty"`
	Tolerations []corev1.Toleration       `json:"tolerations,omitempty"`
	// Unreadable says which field has no usable value. Empty: none.
	Unreadable string `json:"unreadable,omitempty"`
	// flavors are those of which a node must have all labels of one. Empty: there are none.
	flavors []*Flavor
}

// CountTerms returns how many labels, values and tolerations the placement has: comparing it with a node takes as many steps.
func (p *Placement) CountTerms() int {
	size := len(p.Selector) + len(p.Tolerations) + len(p.Terms)
	for i := range p.Terms {
		for _, r := range slices.Concat(p.Terms[i].MatchExpressions, p.Terms[i].MatchFields) {
			size += 1 + len(r.Values)
		}
	}
	return size
}

// Placements are those of the pod templates of a replica. A node must suit all of them.
type Placements []Placement

// Key returns a text that is the same for the same placements.
func (p Placements) Key() string {
	text, err := json.Marshal(p)
	if err != nil || len(text) > maxPlacement { // no text that was decoded from JSON fails
		text, _ = json.Marshal(Placements{{Unreadable: fmt.Sprintf("they have more than %d bytes", maxPlacement)}})
	}
	return string(text)
}

func parsePlacements(key string) (Placements, error) {
	var placements Placements
	if err := json.Unmarshal([]byte(key), &placements); key != "" && err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	for i := range placements {
		if placements[i].Unreadable != "" {
			return nil, fmt.Errorf("%s", placements[i].Unreadable)
		}
	}
	return placements, nil
}

// selectsNode reports whether the labels of a node are those that the templates ask for.
func (p Placements) selectsNode(n *Node) bool {
	return !slices.ContainsFunc(p, func(placement Placement) bool { return !placement.selectsNode(n) })
}

func (p *Placement) selectsNode(n *Node) bool {
	return HasLabels(n.Labels, p.Selector) &&
		(len(p.Terms) == 0 || slices.ContainsFunc(p.Terms, func(t corev1.NodeSelectorTerm) bool { return n.matchesTerm(&t) })) &&
		(len(p.flavors) == 0 || slices.ContainsFunc(p.flavors, func(f *Flavor) bool { return HasLabels(n.Labels, f.Labels) }))
}

// HasLabels reports whether labels include some others.
func HasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if found, has := labels[key]; !has || found != value {
			return false
		}
	}
	return true
}

// matchesTerm reports whether a node matches all requirements. An empty term matches no node.
func (n *Node) matchesTerm(t *corev1.NodeSelectorTerm) bool {
	if len(t.MatchExpressions)+len(t.MatchFields) == 0 {
		return false
	}
	for i := range t.MatchExpressions {
		value, has := n.Labels[t.MatchExpressions[i].Key]
		if !matchesValue(&t.MatchExpressions[i], value, has) {
			return false
		}
	}
	for i := range t.MatchFields { // the API has one field
		if f := &t.MatchFields[i]; f.Key != "metadata.name" || !matchesValue(f, n.Name, true) {
			return false
		}
	}
	return true
}

// matchesValue reports whether a value meets a requirement, as the scheduler has it: a node without the label meets NotIn.
func matchesValue(r *corev1.NodeSelectorRequirement, value string, has bool) bool {
	switch r.Operator {
	case corev1.NodeSelectorOpIn:
		return has && slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpNotIn:
		return !has || !slices.Contains(r.Values, value)
	case corev1.NodeSelectorOpExists:
		return has
	case corev1.NodeSelectorOpDoesNotExist:
		return !has
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		return has && len(r.Values) == 1 && isOrdered(r.Operator, value, r.Values[0])
	}
	return false
}

func isOrdered(operator corev1.NodeSelectorOperator, value, bound string) bool {
	a, err := strconv.ParseInt(value, 10, 64)
	b, other := strconv.ParseInt(bound, 10, 64)
	if err != nil || other != nil {
		return false
	}
	if operator == corev1.NodeSelectorOpGt {
		return a > b
	}
	return a < b
}

// taintsOfState is the prefix of taints that say in what state a node is, not of what kind.
const taintsOfState = "node.kubernetes.io/"

// allTaints returns all taints of a node.
func (n *Node) allTaints() []corev1.Taint {
	if !n.Unschedulable {
		return n.Taints
	}
	// A node that is cordoned has this taint soon after the field.
	return append(slices.Clone(n.Taints), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
}

// taintsOfKind returns the taints that other nodes of the same kind have, too.
func (n *Node) taintsOfKind() []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Taints), func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, taintsOfState) })
}

// toleratesAll reports whether the templates tolerate taints.
func (p Placements) toleratesAll(taints []corev1.Taint) bool {
	if len(p) == 0 {
		p = Placements{{}}
	}
	return !slices.ContainsFunc(p, func(placement Placement) bool {
		return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return repelsPods(&t) && !placement.toleratesTaint(&t) })
	})
}

func repelsPods(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
}

func (p *Placement) toleratesTaint(t *corev1.Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(o corev1.Toleration) bool { return isAbout(&o, t) })
}

// isAbout reports whether a toleration is about a taint. Comparisons of numbers, which not every API server has, tolerate nothing.
func isAbout(o *corev1.Toleration, t *corev1.Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	return o.Operator == corev1.TolerationOpExists ||
		(o.Operator == "" || o.Operator == corev1.TolerationOpEqual) && o.Key != "" && o.Value == t.Value
}
