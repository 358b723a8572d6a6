package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Values in a poolRef. Its group may be empty. The defaults of llm-d's CRDs then set their own group, which has no pools, so
// it means the same.
const (
	poolKind      = "InferencePool"
	poolGroup     = "inference.networking.k8s.io"
	defaultsGroup = "llm-d.ai"
)

const matchExact = "Exact"

// A RuleObject is an object of any kind, in the form from the API server.
type RuleObject struct {
	Name    string
	Created time.Time
	Spec    []byte // JSON; empty if there is none
}

// A ruleSpec is a rule of an InferenceModelRewrite.
type ruleSpec struct {
	Matches []struct {
		Model *struct {
			Type  string `json:"type"`
			Value string `json:"value"`
		} `json:"model"`
	} `json:"matches"`
	Targets []struct {
		Model  string `json:"modelRewrite"`
		Weight *int32 `json:"weight"`
	} `json:"targets"`
}

// ReferencedPool returns the name of the InferencePool that an object belongs to, empty if its poolRef names another kind.
func ReferencedPool(o RuleObject) (string, error) {
	var spec struct {
		PoolRef struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
		} `json:"poolRef"`
	}
	if err := decodeSpec(o, &spec); err != nil {
		return "", err
	}
	ref := spec.PoolRef
	switch {
	case ref.Name == "":
		return "", errors.New("spec.poolRef.name is missing")
	case !slices.Contains([]string{"", poolKind}, ref.Kind), !slices.Contains([]string{"", poolGroup, defaultsGroup}, ref.Group):
		return "", nil
	}
	return ref.Name, nil
}

// ReadObjective reads an InferenceObjective.
func ReadObjective(o RuleObject) (*Objective, error) {
	var spec struct {
		Priority int32 `json:"priority"`
	}
	if err := decodeSpec(o, &spec); err != nil {
		return nil, err
	}
	return &Objective{Name: o.Name, Priority: int(spec.Priority)}, nil
}

// ReadRewrite reads an InferenceModelRewrite. An object is valid as a whole or not at all: if one rule were skipped, the next
// rule would get its models. The note warns users about unexpected effects of the object.
func ReadRewrite(o RuleObject) (object *RewriteObject, note string, err error) {
	var spec struct {
		Rules []ruleSpec `json:"rules"`
	}
	if err := decodeSpec(o, &spec); err != nil {
		return nil, "", err
	}
	object = &RewriteObject{Name: o.Name, Created: o.Created}
	for i, r := range spec.Rules {
		rule, mixed, err := r.toRule()
		if err != nil {
			return nil, "", fmt.Errorf("spec.rules[%d].%w", i, err)
		}
		if mixed && note == "" {
			note = fmt.Sprintf("spec.rules[%d].targets: some have no weight, they count as 1", i)
		}
		object.Rules = append(object.Rules, rule)
	}
	return object, note, nil
}

// decodeSpec decodes a spec.
func decodeSpec(o RuleObject, spec any) error {
	if len(o.Spec) == 0 {
		return errors.New("spec is missing")
	}
	err := json.Unmarshal(o.Spec, spec)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("spec.%s is wrong (%s): give a %s", wrong.Field, wrong.Value, kindOf(wrong))
	}
	if err != nil {
		return fmt.Errorf("spec cannot be read: %w", err)
	}
	return nil
}

// kindOf returns the required type of a field in words.
func kindOf(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "int32":
		return fmt.Sprintf("whole number from %d to %d", math.MinInt32, math.MaxInt32)
	case "slice":
		return "list"
	case "struct", "ptr":
		return "mapping"
	}
	return e.Type.Kind().String()
}

// toRule converts a rule, and reports whether only some of its targets have weights.
func (r ruleSpec) toRule() (rule Rule, mixed bool, err error) {
	for i, m := range r.Matches {
		switch {
		case m.Model == nil || m.Model.Value == "":
			return Rule{}, false, fmt.Errorf("matches[%d].model.value is missing", i)
		case m.Model.Type != "" && m.Model.Type != matchExact:
			return Rule{}, false, fmt.Errorf("matches[%d].model.type %q is not %s", i, m.Model.Type, matchExact)
		}
		rule.Models = append(rule.Models, m.Model.Value)
	}
	if len(r.Targets) == 0 {
		return Rule{}, false, errors.New("targets is empty")
	}
	weighted := 0
	for i, t := range r.Targets {
		target := RewriteTarget{Model: t.Model, Weight: 1}
		switch {
		case t.Model == "":
			return Rule{}, false, fmt.Errorf("targets[%d].modelRewrite is missing", i)
		case t.Weight == nil:
		case *t.Weight < 0:
			return Rule{}, false, fmt.Errorf("targets[%d].weight %d is negative", i, *t.Weight)
		default:
			target.Weight = uint32(*t.Weight)
			weighted++
		}
		rule.Targets = append(rule.Targets, target)
	}
	return rule, weighted > 0 && weighted < len(r.Targets), nil
}
