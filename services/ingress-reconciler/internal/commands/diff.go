package commands

import (
	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// diff returns what would change of an object, as a unified diff of the fields that are wanted: what others have added is
// none of it.
func diff(live, wanted *unstructured.Unstructured) string {
	before, err := yaml.Marshal(project(live.Object, wanted.Object))
	if err != nil {
		return err.Error() + "\n"
	}
	after, err := yaml.Marshal(wanted.Object)
	if err != nil {
		return err.Error() + "\n"
	}
	text, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: difflib.SplitLines(string(before)), B: difflib.SplitLines(string(after)), FromFile: "live", ToFile: "wanted", Context: 3,
	})
	if err != nil {
		return err.Error() + "\n"
	}
	return text
}

// project returns of a value what the wanted one has, too. Elements of a list are compared one by one.
func project(live, wanted any) any {
	switch wanted := wanted.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for key, value := range wanted {
			if v, found := live[key]; found {
				out[key] = project(v, value)
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
				out[i] = project(list[i], wanted[i])
			}
		}
		return out
	}
	return live
}
