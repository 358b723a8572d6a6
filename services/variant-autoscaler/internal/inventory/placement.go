package inventory

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPlacement is the largest size of what pod templates say of nodes, in bytes. Usual templates have some hundred.
const maxPlacement = 16 << 10

// Placement is what a pod template says of nodes. Names in JSON are those of the API.
type Placement struct {
	Selector map[string]string `json:"nodeSelector,omitempty"`
	// Terms are those of the required node affinity, of which a node must match one. Empty: there is none.
	Terms       []Term       `json:"nodeSelectorTerms,omitempty"`
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// Unreadable says which field has no usable value. Empty: none.
	Unreadable string `json:"unreadable,omitempty"`
	// flavors are those of which a node must have all labels of one. Empty: there are none.
	flavors []*Flavor
}

// Term is a term of a node affinity, of which a node must match all requirements.
type Term struct {
	Expressions []Requirement `json:"matchExpressions,omitempty"`
	Fields      []Requirement `json:"matchFields,omitempty"`
}

// Requirement is about a label, or about a field.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// Toleration is a toleration of taints.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// CountTerms returns how many labels, values and tolerations the placement has: comparing it with a node takes as many steps.
func (p *Placement) CountTerms() int {
	size := len(p.Selector) + len(p.Tolerations) + len(p.Terms)
	for i := range p.Terms {
		for _, r := range slices.Concat(p.Terms[i].Expressions, p.Terms[i].Fields) {
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
		(len(p.Terms) == 0 || slices.ContainsFunc(p.Terms, func(t Term) bool { return t.matchesNode(n) })) &&
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

// matchesNode reports whether a node matches all requirements. An empty term matches no node.
func (t *Term) matchesNode(n *Node) bool {
	if len(t.Expressions)+len(t.Fields) == 0 {
		return false
	}
	for i := range t.Expressions {
		value, has := n.Labels[t.Expressions[i].Key]
		if !t.Expressions[i].matchesValue(value, has) {
			return false
		}
	}
	for i := range t.Fields { // the API has one field
		if f := &t.Fields[i]; f.Key != "metadata.name" || !f.matchesValue(n.Name, true) {
			return false
		}
	}
	return true
}

// matchesValue reports whether a value meets the requirement, as the scheduler has it: a node without the label meets NotIn.
func (r *Requirement) matchesValue(value string, has bool) bool {
	switch r.Operator {
	case "In":
		return has && slices.Contains(r.Values, value)
	case "NotIn":
		return !has || !slices.Contains(r.Values, value)
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	case "Gt", "Lt":
		return has && len(r.Values) == 1 && isOrdered(r.Operator, value, r.Values[0])
	}
	return false
}

func isOrdered(operator, value, bound string) bool {
	a, err := strconv.ParseInt(value, 10, 64)
	b, other := strconv.ParseInt(bound, 10, 64)
	if err != nil || other != nil {
		return false
	}
	if operator == "Gt" {
		return a > b
	}
	return a < b
}

// Effects of taints that keep pods from a node.
const (
	effectNoSchedule = "NoSchedule"
	effectNoExecute  = "NoExecute"
)

const (
	// taintsOfState is the prefix of taints that say in what state a node is, not of what kind.
	taintsOfState = "node.kubernetes.io/"
	// taintUnschedulable is the taint of a node that is cordoned. The node has it soon after the field.
	taintUnschedulable = taintsOfState + "unschedulable"
)

// allTaints returns all taints of a node.
func (n *Node) allTaints() []Taint {
	if !n.Unschedulable {
		return n.Taints
	}
	return append(slices.Clone(n.Taints), Taint{Key: taintUnschedulable, Effect: effectNoSchedule})
}

// taintsOfKind returns the taints that other nodes of the same kind have, too.
func (n *Node) taintsOfKind() []Taint {
	return slices.DeleteFunc(slices.Clone(n.Taints), func(t Taint) bool { return strings.HasPrefix(t.Key, taintsOfState) })
}

// toleratesAll reports whether the templates tolerate taints.
func (p Placements) toleratesAll(taints []Taint) bool {
	if len(p) == 0 {
		p = Placements{{}}
	}
	return !slices.ContainsFunc(p, func(placement Placement) bool {
		return slices.ContainsFunc(taints, func(t Taint) bool { return t.repelsPods() && !placement.toleratesTaint(&t) })
	})
}

func (t *Taint) repelsPods() bool { return t.Effect == effectNoSchedule || t.Effect == effectNoExecute }

func (p *Placement) toleratesTaint(t *Taint) bool {
	return slices.ContainsFunc(p.Tolerations, func(o Toleration) bool { return o.toleratesTaint(t) })
}

// toleratesTaint reports whether a toleration is about a taint. Comparisons of numbers, which not every API server has, tolerate nothing.
func (o *Toleration) toleratesTaint(t *Taint) bool {
	if o.Effect != "" && o.Effect != t.Effect || o.Key != "" && o.Key != t.Key {
		return false
	}
	return o.Operator == "Exists" || (o.Operator == "" || o.Operator == "Equal") && o.Key != "" && o.Value == t.Value
}
