// Package hostname makes host names of templates that cluster administrators and users of a namespace write.
//
// The templates are those of OME and KServe: Go's text/template with the fields Name, Namespace, IngressDomain, Annotations
// and Labels. As anybody who may annotate a service can write one, only what cannot take long or much is allowed: fields,
// comparisons, and printf without widths; no loops, no variables, no templates in templates. What comes out is a host name
// that Kubernetes and DNS take, or an error.
package hostname

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Limits.
const (
	maxTemplate = 1024 // bytes
	maxOutput   = 1024 // bytes, before it is looked at as a name
)

// Values are what a template can name.
type Values struct {
	Name, Namespace     string
	IngressDomain       string
	Annotations, Labels map[string]string
}

// Template is a template that is safe to render.
type Template struct{ template *template.Template }

// Parse returns the template of a text, or says what is wrong with it or not allowed.
func Parse(text string) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("template has %d bytes, more than %d", len(text), maxTemplate)
	}
	t, err := template.New("host").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse template %q: %w", text, withoutName(err))
	}
	if len(t.Templates()) > 1 {
		return nil, fmt.Errorf("template %q: other templates in it are not allowed", text)
	}
	if t.Tree == nil || parse.IsEmptyTree(t.Root) {
		return nil, errors.New("template is empty")
	}
	if err := check(t.Root); err != nil {
		return nil, fmt.Errorf("template %q: %w", text, err)
	}
	return &Template{template: t}, nil
}

// withoutName takes the name that text/template needs, and nobody knows, from its messages.
func withoutName(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: host:"))
}

// functions are what can be called: what neither loops nor grows.
var functions = []string{"and", "or", "not", "eq", "ne", "index", "print", "printf"}

// check goes through a template and refuses what is not known to be harmless.
func check(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		return checkAll(n)
	case *parse.IfNode:
		return errors.Join(check(n.Pipe), checkAll(n.List), checkAll(n.ElseList))
	case *parse.ActionNode:
		return check(n.Pipe)
	case *parse.PipeNode:
		return checkPipe(n)
	case *parse.CommandNode:
		return checkCommand(n)
	case *parse.IdentifierNode:
		if !slices.Contains(functions, n.Ident) {
			return fmt.Errorf("function %s is not allowed: there are %s", n.Ident, strings.Join(functions, ", "))
		}
		return nil
	case *parse.TextNode, *parse.CommentNode, *parse.FieldNode, *parse.StringNode, *parse.BoolNode, *parse.NumberNode:
		return nil
	}
	return fmt.Errorf("%s is not allowed", node)
}

// checkAll checks a list, which may be nil.
func checkAll(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		if err := check(n); err != nil {
			return err
		}
	}
	return nil
}

func checkPipe(n *parse.PipeNode) error {
	if len(n.Decl) > 0 {
		return fmt.Errorf("variable %s is not allowed", n.Decl[0])
	}
	if len(n.Cmds) > 1 {
		return fmt.Errorf("pipe %s is not allowed", n)
	}
	return check(n.Cmds[0])
}

// verbs are formats of printf that print a value as it is.
var verbs = regexp.MustCompile(`^([^%]|%[sdv%])*$`)

func checkCommand(n *parse.CommandNode) error {
	for _, arg := range n.Args {
		if err := check(arg); err != nil {
			return err
		}
	}
	function, ok := n.Args[0].(*parse.IdentifierNode)
	if !ok || function.Ident != "printf" {
		return nil
	}
	if len(n.Args) > 1 {
		if format, ok := n.Args[1].(*parse.StringNode); ok && verbs.MatchString(format.Text) {
			return nil
		}
	}
	return fmt.Errorf("%s is not allowed: printf wants a text with %%s, %%d and %%v alone", n)
}

// Render returns the text that the template makes of values. It need not be a host name: a path's template makes a path.
func (t *Template) Render(v Values) (string, error) {
	var out limited
	if err := t.template.Execute(&out, v); err != nil {
		return "", fmt.Errorf("render template: %w", withoutName(err))
	}
	return out.String(), nil
}

// Host returns the host name that the template makes of values.
func (t *Template) Host(v Values) (string, error) {
	host, err := t.Render(v)
	if err != nil {
		return "", err
	}
	if err := Validate(host); err != nil {
		return "", err
	}
	return host, nil
}

// limited is a writer that takes so much and no more.
type limited struct{ strings.Builder }

func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > maxOutput {
		return 0, fmt.Errorf("it makes more than %d bytes", maxOutput)
	}
	return l.Builder.Write(p)
}

// Validate returns why a name cannot be the host of a route: it is a fully qualified domain name in lower case, without a
// wildcard, of labels of at most 63 characters and at most 253 in all.
func Validate(host string) error {
	if problems := validation.IsDNS1123Subdomain(host); len(problems) > 0 {
		return fmt.Errorf("host %q: %s", abridged(host), problems[0])
	}
	labels := strings.Split(host, ".")
	if len(labels) < 2 {
		return fmt.Errorf("host %q: it has no domain", host)
	}
	for _, label := range labels {
		if len(label) > validation.DNS1123LabelMaxLength {
			return fmt.Errorf("host %q: %q has %d characters, more than %d", abridged(host), label, len(label), validation.DNS1123LabelMaxLength)
		}
	}
	return nil
}

// abridged is a name that is not too long for a message.
func abridged(host string) string {
	const most = 300
	if len(host) <= most {
		return host
	}
	return host[:most] + "..."
}
