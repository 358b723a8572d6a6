// Package hostname renders host names from templates that cluster administrators and tenants write.
//
// The templates are compatible with OME and KServe: Go's text/template with the fields Name, Namespace, IngressDomain,
// Annotations and Labels. Every user with permission to annotate an InferenceService can supply a template, so the package
// allows only operations with bounded time and memory: fields, comparisons, and printf without widths. Loops, variables and
// nested templates are rejected. The output is validated as a host name for Kubernetes and DNS.
package hostname

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation"

	"fairlead.dev/pkg/conditions"
)

// Limits.
const (
	maxTemplate = 1024 // bytes
	maxOutput   = 1024 // bytes, before validation as a host name
)

// Values are the fields that a template can use.
type Values struct {
	Name, Namespace     string
	IngressDomain       string
	Annotations, Labels map[string]string
}

// Template is a template that is safe to render.
type Template struct{ template *template.Template }

// Parse parses a template. It returns an error if the text is not a valid template or uses an operation that is not allowed.
func Parse(text string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("template has %d bytes, more than %d", len(text), maxTemplate)
	}
	t, err := template.New("host").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse template %q: %w", text, withoutName(err))
	}
	if len(t.Templates()) > 1 {
		return nil, fmt.Errorf("template %q: nested templates are not allowed", text)
	}
	if t.Tree == nil || parse.IsEmptyTree(t.Root) {
		return nil, errors.New("template is empty")
	}
	if err := checkNode(t.Root); err != nil {
		return nil, fmt.Errorf("template %q: %w", text, err)
	}
	return &Template{template: t}, nil
}

// withoutName removes the internal template name from the error messages of text/template.
func withoutName(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: host:"))
}

// functions are the allowed functions: their time and output are bounded.
var functions = []string{"and", "or", "not", "eq", "ne", "index", "print", "printf"}

// checkNode walks a template and rejects every node type that is not explicitly allowed.
func checkNode(node parse.Node) error {
	var err error
	switch n := node.(type) {
	case *parse.PipeNode:
		err = checkPipe(n)
	case *parse.CommandNode:
		err = checkCommand(n)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, n.Ident) {
			err = fmt.Errorf("function %s is not allowed: use one of %s", n.Ident, strings.Join(functions, ", "))
		}
	case *parse.ListNode, *parse.IfNode, *parse.ActionNode, *parse.TextNode, *parse.CommentNode, *parse.FieldNode, *parse.StringNode,
		*parse.BoolNode, *parse.NumberNode:
	default:
		err = fmt.Errorf("%s is not allowed", node)
	}
	for _, part := range partsOf(node) {
		err = cmp.Or(err, checkNode(part))
	}
	return err
}

// partsOf returns the nodes that a node consists of.
func partsOf(node parse.Node) (parts []parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n != nil {
			return n.Nodes
		}
	case *parse.IfNode:
		return []parse.Node{n.Pipe, n.List, n.ElseList}
	case *parse.ActionNode:
		return []parse.Node{n.Pipe}
	case *parse.PipeNode:
		for _, c := range n.Cmds {
			parts = append(parts, c)
		}
	case *parse.CommandNode:
		return n.Args
	}
	return parts
}

func checkPipe(n *parse.PipeNode) error {
	if len(n.Decl) > 0 {
		return fmt.Errorf("variable %s is not allowed", n.Decl[0])
	}
	if len(n.Cmds) > 1 {
		return fmt.Errorf("pipe %s is not allowed", n)
	}
	return nil
}

// verbs matches printf formats that print values without width or precision.
var verbs = regexp.MustCompile(`^([^%]|%[sdv%])*$`)

func checkCommand(n *parse.CommandNode) error {
	function, ok := n.Args[0].(*parse.IdentifierNode)
	if !ok || function.Ident != "printf" {
		return nil
	}
	if len(n.Args) > 1 {
		if format, ok := n.Args[1].(*parse.StringNode); ok && verbs.MatchString(format.Text) {
			return nil
		}
	}
	return fmt.Errorf("%s is not allowed: the first argument of printf must be a string with no verbs but %%s, %%d and %%v", n)
}

// Render returns the output of the template for values. It does not validate the output, so it also serves path templates.
func (t *Template) Render(v Values) (string, error) {
	var out limitedBuilder
	if err := t.template.Execute(&out, v); err != nil {
		return "", fmt.Errorf("render template: %w", withoutName(err))
	}
	return out.String(), nil
}

// RenderHost returns the host name that the template renders for values.
func (t *Template) RenderHost(v Values) (string, error) {
	host, err := t.Render(v)
	if err != nil {
		return "", err
	}
	if err := Validate(host); err != nil {
		return "", err
	}
	return host, nil
}

// limitedBuilder is a strings.Builder that rejects writes beyond maxOutput.
type limitedBuilder struct{ strings.Builder }

func (l *limitedBuilder) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("output exceeds %d bytes", maxOutput)
	}
	return l.Builder.Write(p)
}

// Validate returns an error if a name cannot be the host of a route. A host is a fully qualified domain name in lower case,
// without a wildcard. It has at most 253 characters, and each label has at most 63.
func Validate(host string) error {
	shown := conditions.TruncateMessage(host, 300)
	if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 {
		return fmt.Errorf("host %q: %s", shown, problems[0])
	}
	labels := strings.Split(host, ".")
	if len(labels) < 2 {
		return fmt.Errorf("host %q has no domain", host)
	}
	for _, label := range labels {
		if len(label) > validation.DNS1123LabelMaxLength {
			return fmt.Errorf("host %q: label %q has %d characters, more than %d", shown, label, len(label),
				validation.DNS1123LabelMaxLength)
		}
	}
	return nil
}
