// Package conditions writes conditions into a status that other programs write, too.
//
// Server-side apply cannot own one element of a condition list whose type is not declared as a map, and an update would
// revert later writes of others. So a condition is written by a JSON patch of its element with the resourceVersion of the
// object that was read. If the object has changed, the API server answers 409 Conflict, or 422 Invalid if the list has
// become shorter. Read the object again in both cases. All other conditions stay unchanged, with all their fields.
//
// Set and Patch are for metav1.Condition, with observedGeneration. SetDuck and PatchDuck are for the six fields of Knative's
// conditions, which OME and KServe use. An unchanged state gives no patch, so a settled object causes no writes.
package conditions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is the maximum length of a message in metav1.Condition.
const maxMessage = 32768

// Status is the input of a patch of conditions.
type Status[C any] struct {
	ResourceVersion string // of the object that was read
	Exists          bool   // the object has a non-null status
	Listed          bool   // the status has a non-null list of conditions
	Conditions      []C    // in the order of the list
}

// Duck is a condition with the six fields of Knative's duck type.
type Duck struct {
	Type               string                 `json:"type"`
	Status             metav1.ConditionStatus `json:"status"`
	Severity           string                 `json:"severity"`
	LastTransitionTime string                 `json:"lastTransitionTime"` // unparsed, as in the object
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
}

// SetDuck returns next with its transition time: unchanged if the status is the same as before, else now.
func SetDuck(before *Duck, next Duck, now time.Time) Duck {
	next.LastTransitionTime = now.UTC().Format(time.RFC3339)
	if before != nil && before.Status == next.Status && before.LastTransitionTime != "" {
		next.LastTransitionTime = before.LastTransitionTime
	}
	return next
}

// FindDuck returns the condition of a type, or nil.
func FindDuck(all []Duck, kind string) *Duck {
	i := slices.IndexFunc(all, func(c Duck) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// PatchDuck returns the JSON patch that sets a condition, nil if the object already has it.
func PatchDuck(s Status[Duck], next Duck) []byte {
	return replaceConditions(s, func(a, b *Duck) bool { return a.Type == b.Type }, func(a, b *Duck) bool { return *a == *b }, next)
}

// Set returns next with its transition time: unchanged if the status is the same as before, else now. It truncates a message
// that is too long for the API.
func Set(before *metav1.Condition, next metav1.Condition, now time.Time) metav1.Condition {
	next.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	if before != nil && before.Status == next.Status && !before.LastTransitionTime.IsZero() {
		next.LastTransitionTime = before.LastTransitionTime
	}
	if len(next.Message) > maxMessage {
		next.Message = strings.ToValidUTF8(next.Message[:maxMessage-len("...")], "") + "..."
	}
	return next
}

// Patch returns the JSON patch that sets conditions, nil if the object already has them. A condition with an older
// observedGeneration differs.
func Patch(s Status[metav1.Condition], next ...metav1.Condition) []byte {
	return replaceConditions(s, func(a, b *metav1.Condition) bool { return a.Type == b.Type }, equalConditions, next...)
}

func equalConditions(a, b *metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.ObservedGeneration == b.ObservedGeneration &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime) && a.Reason == b.Reason && a.Message == b.Message
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// replaceConditions replaces conditions by their index and appends new ones.
func replaceConditions[C any](s Status[C], same, equal func(a, b *C) bool, next ...C) []byte {
	operations := []operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: s.ResourceVersion}}
	var added []C
	for i := range next {
		at := slices.IndexFunc(s.Conditions, func(c C) bool { return same(&c, &next[i]) })
		switch {
		case at < 0:
			added = append(added, next[i])
		case !equal(&s.Conditions[at], &next[i]):
			operations = append(operations, operation{Op: "replace", Path: fmt.Sprintf("/status/conditions/%d", at), Value: next[i]})
		}
	}
	switch {
	case len(added) == 0:
	case s.Listed:
		for i := range added {
			operations = append(operations, operation{Op: "add", Path: "/status/conditions/-", Value: added[i]})
		}
	case s.Exists:
		operations = append(operations, operation{Op: "add", Path: "/status/conditions", Value: added})
	default:
		operations = append(operations, operation{Op: "add", Path: "/status", Value: map[string]any{"conditions": added}})
	}
	if len(operations) == 1 {
		return nil
	}
	text, err := json.Marshal(operations)
	if err != nil {
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // unreachable: conditions consist of strings and numbers
	}
	return text
}
