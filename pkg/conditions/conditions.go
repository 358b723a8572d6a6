// Package conditions writes conditions into a status that other programs write, too.
//
// Server-side apply cannot own one element of a condition list whose type is not declared as a map, and an update would take
// back what others wrote since. So a condition is written by a JSON patch of its element, which names the version of the object
// that was read: the API server answers 409 Conflict, or 422 Invalid if the list has become shorter, when the object has
// changed. Read the object again in both cases. All other conditions stay as they are, whatever fields they have.
//
// Set and Patch are for metav1.Condition, with observedGeneration. SetDuck and PatchDuck are for the six fields of Knative's
// conditions, which OME and KServe use. The same state gives no patch, so a settled object causes no writes.
package conditions

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is the length of a message that the validation of metav1.Condition allows.
const maxMessage = 32768

// Status is what a patch of conditions depends on.
type Status[C any] struct {
	ResourceVersion string // of the object that was read
	Exists          bool   // the object has a status that is not null
	Listed          bool   // the status has a list of conditions that is not null
	Conditions      []C    // in the order of the list
}

// Duck is a condition with the six fields of Knative's duck type.
type Duck struct {
	Type               string                 `json:"type"`
	Status             metav1.ConditionStatus `json:"status"`
	Severity           string                 `json:"severity"`
	LastTransitionTime string                 `json:"lastTransitionTime"` // as the object has it, not parsed
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
}

// SetDuck returns next with its time: that of the condition before if the status is the same, else now.
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

// PatchDuck returns the JSON patch that gives an object a condition, nil if the object has it.
func PatchDuck(s Status[Duck], next Duck) []byte {
	return patch(s, func(a, b *Duck) bool { return a.Type == b.Type }, func(a, b *Duck) bool { return *a == *b }, next)
}

// Set returns next with its time: that of the condition before if the status is the same, else now. A message that is too long
// for the API is cut.
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

// Patch returns the JSON patch that gives an object conditions, nil if the object has them. A condition with an older
// observedGeneration differs.
func Patch(s Status[metav1.Condition], next ...metav1.Condition) []byte {
	return patch(s, func(a, b *metav1.Condition) bool { return a.Type == b.Type }, equal, next...)
}

func equal(a, b *metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.ObservedGeneration == b.ObservedGeneration &&
		a.LastTransitionTime.Equal(&b.LastTransitionTime) && a.Reason == b.Reason && a.Message == b.Message
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patch replaces conditions by their index and appends new ones.
func patch[C any](s Status[C], same, equal func(a, b *C) bool, next ...C) []byte {
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
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // conditions consist of texts and numbers
	}
	return text
}
