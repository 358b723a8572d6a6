package commands

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// selection selects InferenceServices.
type selection struct {
	namespace string   // empty: all
	selector  string   // label selector; empty: all
	names     []string // empty: all

	labels labels.Selector
}

func (s *selection) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&s.namespace, "namespace", "n", "", "Namespace of the InferenceServices. Empty: all.")
	fs.StringVarP(&s.selector, "selector", "l", "", "Selector of labels of the InferenceServices, such as team=a. Empty: all.")
}

// parseFlags checks the flags.
func (s *selection) parseFlags(names []string) error {
	var err error
	if s.labels, err = labels.Parse(s.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	s.names = names
	return nil
}

// matchesService reports whether an object is a selected InferenceService.
func (s *selection) matchesService(u *unstructured.Unstructured) bool {
	return isService(u) && (s.namespace == "" || u.GetNamespace() == s.namespace) &&
		(len(s.names) == 0 || slices.Contains(s.names, u.GetName())) && s.labels.Matches(labels.Set(u.GetLabels()))
}

// selectNames returns the names of the selected InferenceServices, sorted.
func (s *selection) selectNames(objects []*unstructured.Unstructured) []cache.ObjectName {
	var names []cache.ObjectName
	for _, u := range objects {
		if s.matchesService(u) {
			names = append(names, cache.MetaObjectToName(u))
		}
	}
	slices.SortFunc(names, compareNames)
	return slices.Compact(names)
}

func compareNames(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) }
