package dryrun

import (
	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// contextLines is the number of equal lines before and after a difference, as in diff -u.
const contextLines = 3

// Diff returns the changes to an object as a unified diff of the fields in the wanted object. It omits fields that other
// programs or the API server added.
func Diff(live, wanted *unstructured.Unstructured) string {
	before, err := yaml.Marshal(projectWanted(live.Object, wanted.Object))
	if err != nil {
		return err.Error() + "\n"
	}
	after, err := yaml.Marshal(wanted.Object)
	if err != nil {
		return err.Error() + "\n"
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(before)), B: difflib.SplitLines(string(after)), FromFile: "live", ToFile: "wanted",
		Context: contextLines,
	})
	if err != nil {
		return err.Error() + "\n"
	}
	return text
}

// projectWanted returns the part of a value that also exists in the wanted value. Elements of lists are compared by index.
func projectWanted(live, wanted any) any {
	switch wanted := wanted.(type) {
	case map[string]any:
		object, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for key, value := range wanted {
			if v, found := object[key]; found {
				out[key] = projectWanted(v, value)
			}
		}
		return out
	case []any:
		list, ok := live.([]any)
		if !ok {
			return live
		}
		out := make([]any, len(list))
		for i := range list {
			if out[i] = list[i]; i < len(wanted) {
				out[i] = projectWanted(list[i], wanted[i])
			}
		}
		return out
	}
	return live
}
