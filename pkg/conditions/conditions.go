// Package conditions writes conditions into a status that other programs write, too.
//
// Server-side apply cannot own one element of a condition list whose type is not declared as a map, and an update would
// revert later writes of others. So a condition is written by a JSON patch of its element with the resourceVersion of the
// object that was read. If the object has changed, the API server answers 409 Conflict, or 422 Invalid if the list has
// become shorter. Read the object again in both cases. All other conditions stay unchanged, with all their fields.
//
// PatchDuck is for the six fields of Knative's conditions, which OME and KServe use. An unchanged state gives no patch, so a settled
// object causes no writes. Set is for the metav1.Conditions of our own statuses.
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
type Status struct {
	ResourceVersion string // of the object that was read
	Exists          bool   // the object has a non-null status
	Listed          bool   // the status has a non-null list of conditions
	Conditions      []Duck // in the order of the list
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
func PatchDuck(s Status, next Duck) []byte {
	at := slices.IndexFunc(s.Conditions, func(c Duck) bool { return c.Type == next.Type })
	change := operation{Op: "add", Path: "/status", Value: map[string]any{"conditions": []Duck{next}}}
	switch {
	case at >= 0 && s.Conditions[at] == next:
		return nil
	case at >= 0:
		change = operation{Op: "replace", Path: fmt.Sprintf("/status/conditions/%d", at), Value: next}
	case s.Listed:
		change = operation{Op: "add", Path: "/status/conditions/-", Value: next}
	case s.Exists:
		change = operation{Op: "add", Path: "/status/conditions", Value: []Duck{next}}
	}
	text, err := json.Marshal([]operation{{Op: "replace", Path: "/metadata/resourceVersion", Value: s.ResourceVersion}, change})
	if err != nil {
		panic(fmt.Sprintf("patch is not JSON: %v", err)) // unreachable: conditions consist of strings
	}
	return text
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Set returns next with its transition time: unchanged if the status is the same as before, else now. It truncates a message
// that is too long for the API.
func Set(before *metav1.Condition, next metav1.Condition, now time.Time) metav1.Condition {
	next.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
	if before != nil && before.Status == next.Status && !before.LastTransitionTime.IsZero() {
		next.LastTransitionTime = before.LastTransitionTime
	}
	next.Message = TruncateMessage(next.Message, maxMessage)
	return next
}

// TruncateMessage truncates a message to a number of bytes, after a whole character.
func TruncateMessage(message string, limit int) string {
	const ellipsis = "..."
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit-len(ellipsis)], "") + ellipsis
}
