package main

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// bubbles knows which code of a package runs in synctest bubbles: function literals passed to synctest.Test, other literals of such a test that
// do not run as subtests, and helpers that are used only from bubbles. Without types it goes by names, so that one use of a method's name outside
// of a bubble counts for all methods of that name.
type bubbles []span

type span struct{ from, to token.Pos }

func (b bubbles) contain(at token.Pos) bool {
	for _, s := range b {
		if s.from <= at && at < s.to {
			return true
		}
	}
	return false
}

// helper is a function or method of test files that is no test.
type helper struct {
	declaration *ast.FuncDecl
	receiver    string // name of the type, empty for a function
	bubbled     bool
}

func findBubbles(p *testPackage) bubbles {
	var b bubbles
	var helpers []*helper
	uses := map[string][]token.Pos{} // of identifiers, other than their declarations
	for _, file := range p.files {
		for _, declaration := range file.syntax.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				b = append(b, literals(f)...)
				if !isTest(f.Name.Name) && !strings.HasPrefix(f.Name.Name, "Benchmark") {
					helpers = append(helpers, &helper{declaration: f, receiver: receiverType(f), bubbled: true})
				}
			}
		}
		collectUses(file.syntax, uses)
	}
	return b.withHelpers(helpers, uses)
}

// literals returns the function literals of a function that calls synctest.Test, without those that are passed to t.Run.
func literals(f *ast.FuncDecl) bubbles {
	if f.Body == nil || !callsSynctest(f.Body) {
		return nil
	}
	var b bubbles
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
			b = append(b, span{n.Pos(), n.End()})
			return false
		}
		return true
	}
	ast.Inspect(f.Body, visit)
	return b
}

func callsSynctest(n ast.Node) bool {
	found := false
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && selector(s) == "synctest.Test" {
			found = true
		}
		return !found
	})
	return found
}

// withHelpers adds helpers whose uses are all in bubbles. It begins with the assumption that all are, so that helpers may use each other.
func (b bubbles) withHelpers(helpers []*helper, uses map[string][]token.Pos) bubbles {
	for {
		all := slices.Clone(b)
		for _, h := range helpers {
			if h.bubbled {
				all = append(all, span{h.declaration.Pos(), h.declaration.End()})
			}
		}
		changed := false
		for _, h := range helpers {
			if h.bubbled && !all.containUses(h, uses) {
				h.bubbled, changed = false, true
			}
		}
		if !changed {
			return all
		}
	}
}

// containUses reports whether a helper has uses, and all of them are in bubbles.
func (b bubbles) containUses(h *helper, uses map[string][]token.Pos) bool {
	at := uses[h.declaration.Name.Name]
	if len(at) == 0 && h.receiver != "" { // a method that the code under test calls
		at = uses[h.receiver]
	}
	outside := 0
	for _, pos := range at {
		if h.declaration.Pos() <= pos && pos < h.declaration.End() {
			continue
		}
		if !b.contain(pos) {
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
			if id, ok := n.(*ast.Ident); ok {
				uses[id.Name] = append(uses[id.Name], id.Pos())
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
