// Package dryrun supports sub-commands that print the objects that a controller would write, and write nothing.
//
// ReadFiles and ReadCluster read a World: all objects that a plan depends on, from manifests or from a cluster. With package
// informers, a World has the same caches as a running service. Write prints objects, Diff prints a difference, and ExitCode
// returns the exit code of the process:
//
//	0   no difference
//	2   ErrDiffers: the cluster differs from the plan
//	1   any other error, ErrNothingPlanned among them: a plan that planned nothing must not pass for one without differences
//
// A World has messages about all skipped input. Print them: a plan from half of the input misleads.
package dryrun

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/service"
)

var (
	// ErrDiffers means that the objects in the cluster differ from the plan.
	ErrDiffers = service.Explained("the cluster differs from the plan", ExitDiffers)
	// ErrNothingPlanned means that no object could be planned.
	ErrNothingPlanned = errors.New("nothing could be planned")
)

// ExitDiffers is the exit code for a cluster that differs from the plan.
const ExitDiffers = 2

// World contains the objects that a command reads.
type World struct {
	informers.Snapshot

	Skipped []string // messages about skipped input
}

func (w *World) recordSkipped(format string, args ...any) {
	w.Skipped = append(w.Skipped, fmt.Sprintf(format, args...))
}

// Print writes the messages about skipped input.
func (w *World) Print(out io.Writer) {
	for _, message := range w.Skipped {
		fmt.Fprintln(out, message)
	}
}

// ConfigMap returns the value of a key of a ConfigMap.
func (w *World) ConfigMap(name cache.ObjectName, key string) (string, bool) {
	data, _ := w.ConfigMapData(name)
	text, found := data[key]
	return text, found
}

// ConfigMapData returns the data of a ConfigMap, and whether it exists.
func (w *World) ConfigMapData(name cache.ObjectName) (map[string]string, bool) {
	for _, u := range w.Objects {
		if u.GetAPIVersion() == "v1" && u.GetKind() == "ConfigMap" && u.GetNamespace() == name.Namespace && u.GetName() == name.Name {
			data, _, err := unstructured.NestedStringMap(u.Object, "data")
			return data, err == nil
		}
	}
	return nil, false
}

// WriteYAML writes objects as YAML documents.
func WriteYAML(out io.Writer, objects ...*unstructured.Unstructured) error {
	for _, u := range objects {
		text, err := yaml.Marshal(u.Object)
		if err != nil {
			return fmt.Errorf("write %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if _, err := fmt.Fprintf(out, "---\n%s", text); err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// WriteList writes objects as a List in JSON.
func WriteList(out io.Writer, objects ...*unstructured.Unstructured) error {
	items := []any{}
	for _, u := range objects {
		items = append(items, u.Object)
	}
	return WriteJSON(out, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// WriteJSON writes one document.
func WriteJSON(out io.Writer, document any) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}
