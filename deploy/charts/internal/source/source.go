// Package source finds names in the Go source of services: those of metrics and of condition reasons. Modules outside of a
// service cannot import its internal packages, so tests of dashboards, rules and documents read the source instead.
package source

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// metricName is the form of a metric's name. The prefixes are those of our own metrics, of those that have llm-d's names,
// and of client-go's work queues.
var metricName = regexp.MustCompile(`^(fairlead|workqueue|wva)(_[a-z]+)+$`)

// Metrics returns the names of the metrics that the packages in some folders export, sorted: the strings of that form.
func Metrics(dirs ...string) ([]string, error) {
	return find(dirs, func(node ast.Node, add func(string)) {
		if lit, ok := node.(*ast.BasicLit); ok {
			if text := stringOf(lit); metricName.MatchString(text) {
				add(text)
			}
		}
	})
}

// Reasons returns the values of the string constants in some folders whose names begin with Reason or reason, sorted.
func Reasons(dirs ...string) ([]string, error) {
	return find(dirs, func(node ast.Node, add func(string)) {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return
		}
		for i, name := range spec.Names {
			if i < len(spec.Values) && strings.HasPrefix(strings.ToLower(name.Name), "reason") {
				if text := stringOf(spec.Values[i]); text != "" {
					add(text)
				}
			}
		}
	})
}

// unbound are the methods of pflag that define a flag without a variable of the caller.
var unbound = []string{"Bool", "Int", "String"}

// Flags returns the names that some folders give to flags of pflag, sorted: the second argument of calls such as BoolVar and Var, and the
// first of those such as Bool, a literal or a constant.
func Flags(dirs ...string) ([]string, error) {
	constants := map[string]string{}
	var arguments []ast.Expr
	_, err := find(dirs, func(node ast.Node, _ func(string)) {
		switch node := node.(type) {
		case *ast.ValueSpec:
			for i, value := range node.Values {
				constants[node.Names[i].Name] = stringOf(value)
			}
		case *ast.CallExpr:
			method, ok := node.Fun.(*ast.SelectorExpr)
			switch {
			case !ok || len(node.Args) < 3:
			case strings.HasSuffix(method.Sel.Name, "Var"):
				arguments = append(arguments, node.Args[1])
			case slices.Contains(unbound, method.Sel.Name):
				arguments = append(arguments, node.Args[0])
			}
		}
	})
	var names []string
	for _, argument := range arguments {
		name := stringOf(argument)
		if constant, ok := argument.(*ast.Ident); ok {
			name = constants[constant.Name]
		}
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// find visits every node of the Go files in some folders and those below, without tests.
func find(dirs []string, visit func(node ast.Node, add func(string))) ([]string, error) {
	var found []string
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(node ast.Node) bool {
				visit(node, func(text string) { found = append(found, text) })
				return true
			})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read source of %s: %w", dir, err)
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

// stringOf returns the value of a string literal, empty for any other expression.
func stringOf(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return text
}
