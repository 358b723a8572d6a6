package hostname

import (
	"slices"
	"text/template/parse"
)

// UsesMetadata reports whether the output of the template depends on labels or annotations, which the author of an InferenceService
// chooses. It returns false for a nil Template.
func (t *Template) UsesMetadata() bool { return t != nil && usesMetadata(t.template.Root) }

func usesMetadata(node parse.Node) bool {
	switch n := node.(type) {
	case *parse.ListNode:
		return n != nil && slices.ContainsFunc(n.Nodes, usesMetadata)
	case *parse.IfNode:
		return usesMetadata(n.Pipe) || usesMetadata(n.List) || usesMetadata(n.ElseList)
	case *parse.ActionNode:
		return usesMetadata(n.Pipe)
	case *parse.PipeNode:
		return slices.ContainsFunc(n.Cmds, func(c *parse.CommandNode) bool { return usesMetadata(c) })
	case *parse.CommandNode:
		return slices.ContainsFunc(n.Args, usesMetadata)
	case *parse.FieldNode:
		return n.Ident[0] == "Labels" || n.Ident[0] == "Annotations"
	}
	return false
}
