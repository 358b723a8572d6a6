package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// spans is code of a package that has something in common.
type spans []span

type span struct{ from, to token.Pos }

func (s spans) containsPosition(at token.Pos) bool {
	for _, each := range s {
		if each.from <= at && at < each.to {
			return true
		}
	}
	return false
}

// helper is a function or method of test files that is no test and no benchmark.
type helper struct {
	declaration *ast.FuncDecl
	receiver    string // name of the type, empty for a function
}

// calledAs returns what calledName returns for calls of a helper.
func (h *helper) calledAs() string {
	if h.receiver != "" {
		return "." + h.declaration.Name.Name
	}
	return h.declaration.Name.Name
}

// functions are the functions of the test files of a package. Without types they go by names: a use of a method's name counts for all
// methods of that name.
type functions struct {
	all        []*ast.FuncDecl
	helpers    []*helper
	benchmarks spans
	uses       map[string][]token.Pos // of identifiers in bodies; those after a dot have their names with one
}

func functionsOf(p *testPackage) functions {
	fs := functions{uses: map[string][]token.Pos{}}
	for _, file := range p.files {
		for _, declaration := range file.syntax.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			fs.all = append(fs.all, f)
			switch {
			case f.Recv == nil && strings.HasPrefix(f.Name.Name, "Benchmark"):
				fs.benchmarks = append(fs.benchmarks, span{f.Pos(), f.End()})
			case f.Recv != nil || !isTest(f.Name.Name):
				fs.helpers = append(fs.helpers, &helper{declaration: f, receiver: receiverType(f)})
			}
		}
		collectUses(file.syntax, fs.uses)
	}
	return fs
}

// benchmarkSpans returns benchmarks, and helpers that only benchmarks use.
func (fs functions) benchmarkSpans() spans { return fs.withHelpers(fs.benchmarks) }

// parallelSpans returns the tests that run beside others, or have such subtests.
func (fs functions) parallelSpans() spans {
	parallel := fs.callersOf(".Parallel")
	var beside spans
	for _, f := range fs.all {
		if f.Body != nil && isTest(f.Name.Name) && callsAny(f.Body, parallel) {
			beside = append(beside, span{f.Pos(), f.End()})
		}
	}
	return beside
}

// callersOf returns the names, as calledName does, and those of helpers that call a function or method of such a name.
func (fs functions) callersOf(names ...string) map[string]bool {
	return fs.closure(func(f *ast.FuncDecl, known map[string]bool) bool { return callsAny(f.Body, known) }, names...)
}

// closure returns the names, and those of helpers that belong to them, given the names that are known to do so.
func (fs functions) closure(belongs func(f *ast.FuncDecl, known map[string]bool) bool, names ...string) map[string]bool {
	known := map[string]bool{}
	for _, name := range names {
		known[name] = true
	}
	for changed := true; changed; {
		changed = false
		for _, h := range fs.helpers {
			f, name := h.declaration, h.calledAs()
			if f.Body != nil && !known[name] && belongs(f, known) {
				known[name], changed = true, true
			}
		}
	}
	return known
}

// bubbleSpans returns the code that runs in synctest bubbles: function literals passed to synctest.Test, or to helpers that pass their
// arguments on to it, other literals of such tests that do not run as subtests, and helpers that are used only from bubbles.
func (fs functions) bubbleSpans() spans {
	runners := fs.runnerNames()
	var inside spans
	for _, f := range fs.all {
		inside = append(inside, bubbleLiterals(f)...)
		inside = append(inside, functionArguments(f, runners)...)
	}
	return fs.withHelpers(inside)
}

// runnerNames returns the names of helpers that run functions they are given in bubbles, or give them to such helpers.
func (fs functions) runnerNames() map[string]bool {
	return fs.closure(func(f *ast.FuncDecl, known map[string]bool) bool {
		return hasFunctionParameter(f) && (callsSynctest(f.Body) || callsAny(f.Body, known))
	})
}

func hasFunctionParameter(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(field *ast.Field) bool {
		_, ok := field.Type.(*ast.FuncType)
		return ok
	})
}

// functionArguments returns the functions that a function passes to synctest.Test or to one of the runners, as literals or by their names.
func functionArguments(f *ast.FuncDecl, runners map[string]bool) spans {
	var inside spans
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if s, ok := call.Fun.(*ast.SelectorExpr); !runners[calledName(call)] && (!ok || selectorName(s) != "synctest.Test") {
			return true
		}
		for _, argument := range call.Args {
			switch argument.(type) {
			case *ast.FuncLit, *ast.Ident, *ast.SelectorExpr:
				inside = append(inside, span{argument.Pos(), argument.End()})
			}
		}
		return true
	})
	return inside
}

func callsAny(n ast.Node, names map[string]bool) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && names[calledName(call)] {
			found = true
		}
		return !found
	})
	return found
}

// calledName returns the name of what is called, with a dot if it is behind one.
func calledName(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return "." + f.Sel.Name
	}
	return ""
}

// bubbleLiterals returns the function literals of a function that calls synctest.Test, without those that are passed to t.Run.
func bubbleLiterals(f *ast.FuncDecl) spans {
	if f.Body == nil || !callsSynctest(f.Body) {
		return nil
	}
	var inside spans
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if ok && s.Sel.Name == "Run" && len(n.Args) == 2 {
				if subtest, ok := n.Args[1].(*ast.FuncLit); ok {
					ast.Inspect(subtest.Body, visit)
					return false
				}
			}
		case *ast.FuncLit:
			inside = append(inside, span{n.Pos(), n.End()})
			return false
		}
		return true
	}
	ast.Inspect(f.Body, visit)
	return inside
}

func callsSynctest(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && selectorName(s) == "synctest.Test" {
			found = true
		}
		return !found
	})
	return found
}

// withHelpers adds helpers whose uses are all in the spans. It begins with the assumption that all are, so that helpers may use each other.
func (fs functions) withHelpers(base spans) spans {
	helpers := slices.Clone(fs.helpers)
	for {
		all := slices.Clone(base)
		for _, h := range helpers {
			all = append(all, span{h.declaration.Pos(), h.declaration.End()})
		}
		before := len(helpers)
		helpers = slices.DeleteFunc(helpers, func(h *helper) bool { return !all.containUses(h, fs.uses) })
		if len(helpers) == before {
			return all
		}
	}
}

// containUses reports whether a helper has uses, and all of them are in the spans.
func (s spans) containUses(h *helper, uses map[string][]token.Pos) bool {
	at := uses[h.declaration.Name.Name]
	if h.receiver != "" {
		at = uses["."+h.declaration.Name.Name]
		if len(at) == 0 { // the code under test calls it
			at = uses[h.receiver]
		}
	}
	outside := 0
	for _, pos := range at {
		if h.declaration.Pos() <= pos && pos < h.declaration.End() {
			continue
		}
		if !s.containsPosition(pos) {
			return false
		}
		outside++
	}
	return outside > 0
}

// collectUses collects the identifiers in the bodies of a file's functions.
func collectUses(file *ast.File, uses map[string][]token.Pos) {
	for _, declaration := range file.Decls {
		f, ok := declaration.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				uses["."+n.Sel.Name] = append(uses["."+n.Sel.Name], n.Sel.Pos())
			case *ast.Ident:
				uses[n.Name] = append(uses[n.Name], n.Pos())
			}
			return true
		})
	}
}

func receiverType(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
