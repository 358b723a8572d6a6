package hostname

import (
	"slices"
	"text/template/parse"
)

// UsesMetadata reports whether the output of the template depends on labels or annotations, which the author of an InferenceService
// chooses. It returns false for a nil Template.
func (t *Template) UsesMetadata() bool { return t != nil && usesMetadata(t.template.Root) }

func usesMetadata(node parse.Node) bool {
	if field, ok := node.(*parse.FieldNode); ok {
		return field.Ident[0] == "Labels" || field.Ident[0] == "Annotations"
	}
	return slices.ContainsFunc(partsOf(node), usesMetadata)
}
