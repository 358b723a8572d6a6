package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// bubbles knows which code of a package runs in synctest bubbles: function literals passed to synctest.Test, other literals of such a test that
// do not run as subtests, and helpers that are used only from bubbles. Without types it goes by names, so that one use of a method's name outside
// of a bubble counts for all methods of that name.
type bubbles struct {
	ranges  []span
	bounded map[token.Pos]bool // calls with a time limit of Patience
}

type span struct{ from, to token.Pos }

func (b *bubbles) contain(at token.Pos) bool {
	for _, s := range b.ranges {
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

func findBubbles(p *testPackage) *bubbles {
	b := &bubbles{bounded: map[token.Pos]bool{}}
	var helpers []*helper
	uses := map[string][]token.Pos{} // of identifiers, other than their declarations
	for _, file := range p.files {
		for _, declaration := range file.syntax.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok {
				b.literals(f)
				if !isTest(f.Name.Name) && !strings.HasPrefix(f.Name.Name, "Benchmark") {
					helpers = append(helpers, &helper{declaration: f, receiver: receiverType(f), bubbled: true})
				}
			}
		}
		collectUses(file.syntax, uses)
	}
	b.addHelpers(helpers, uses)
	return b
}

// literals adds the function literals of a function that calls synctest.Test. A literal that is passed to t.Run is a bubble only where it calls
// synctest.Test itself.
func (b *bubbles) literals(f *ast.FuncDecl) {
	if f.Body == nil || !callsSynctest(f.Body) {
		return
	}
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
			b.ranges = append(b.ranges, span{n.Pos(), n.End()})
			return false
		}
		return true
	}
	ast.Inspect(f.Body, visit)
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

// addHelpers adds helpers whose uses are all in bubbles. It begins with the assumption that all are, so that helpers may use each other.
func (b *bubbles) addHelpers(helpers []*helper, uses map[string][]token.Pos) {
	base := len(b.ranges)
	for changed := true; changed; {
		changed = false
		b.ranges = b.ranges[:base]
		for _, h := range helpers {
			if h.bubbled {
				b.ranges = append(b.ranges, span{h.declaration.Pos(), h.declaration.End()})
			}
		}
		for _, h := range helpers {
			if h.bubbled && !b.containAll(h, uses) {
				h.bubbled, changed = false, true
			}
		}
	}
}

func (b *bubbles) containAll(h *helper, uses map[string][]token.Pos) bool {
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

// collectUses collects the identifiers of a file other than the names of declared functions, and the types of receivers, parameters and other
// declarations.
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
