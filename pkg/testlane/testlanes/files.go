package main

import (
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// Lanes. The names of all but the first are build tags.
const (
	firstLane  = "first"
	systemLane = "system"
	longLane   = "long"
)

// testFile is a parsed _test.go file.
type testFile struct {
	path   string
	lanes  []string // those that compile it, and no earlier one does
	syntax *ast.File
}

// testPackage contains the test files of one folder.
type testPackage struct {
	folder string
	files  []*testFile
}

// loadTests parses the test files in a folder and below it. It does not enter other modules, nor folders that the go command ignores.
func loadTests(root string) (*token.FileSet, []*testPackage, error) {
	fset := token.NewFileSet()
	packages := map[string]*testPackage{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && isIgnored(path):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parseFile(fset, path)
		if err != nil {
			return err
		}
		folder := filepath.Dir(path)
		if packages[folder] == nil {
			packages[folder] = &testPackage{folder: folder}
		}
		packages[folder].files = append(packages[folder].files, file)
		return nil
	})
	sorted := slices.SortedFunc(maps.Values(packages), func(a, b *testPackage) int { return strings.Compare(a.folder, b.folder) })
	return fset, sorted, err
}

func isIgnored(folder string) bool {
	name := filepath.Base(folder)
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	modules, err := filepath.Glob(filepath.Join(folder, "go.mod"))
	return err == nil && len(modules) > 0
}

func parseFile(fset *token.FileSet, path string) (*testFile, error) {
	syntax, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	lanes, err := lanesOf(syntax)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &testFile{path: path, lanes: lanes, syntax: syntax}, nil
}

// lanesOf evaluates the build constraint of a file. A file that is compiled without the tags of lanes belongs to the first lane alone.
func lanesOf(file *ast.File) ([]string, error) {
	expression, err := constraintOf(file)
	if err != nil {
		return nil, err
	}
	compiled := func(lane string) bool {
		return expression.Eval(func(tag string) bool {
			return tag == lane || tag != systemLane && tag != longLane
		})
	}
	if expression == nil || compiled("") {
		return []string{firstLane}, nil
	}
	var lanes []string
	for _, lane := range []string{systemLane, longLane} {
		if compiled(lane) {
			lanes = append(lanes, lane)
		}
	}
	if len(lanes) == 0 {
		return nil, fmt.Errorf("no lane compiles it: %s", expression)
	}
	return lanes, nil
}

func constraintOf(file *ast.File) (constraint.Expr, error) {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if comment.Pos() < file.Package && constraint.IsGoBuild(comment.Text) {
				return constraint.Parse(comment.Text)
			}
		}
	}
	return nil, nil
}

// printTests prints a line for each package in a module's folder that has tests of a lane: its path, a tab, and a regular expression of
// the names of these tests.
func printTests(out io.Writer, lane, folder string) error {
	_, packages, err := loadTests(folder)
	if err != nil {
		return err
	}
	for _, p := range packages {
		names := p.testNames(lane)
		if len(names) == 0 {
			continue
		}
		relative, err := filepath.Rel(folder, p.folder)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "./%s\t^(%s)$\n", filepath.ToSlash(relative), strings.Join(names, "|")); err != nil {
			return err
		}
	}
	return nil
}

// testNames returns the names of the tests, fuzz tests and examples of a lane, sorted.
func (p *testPackage) testNames(lane string) []string {
	var names []string
	for _, file := range p.files {
		if !slices.Contains(file.lanes, lane) {
			continue
		}
		for _, declaration := range file.syntax.Decls {
			f, ok := declaration.(*ast.FuncDecl)
			if ok && f.Recv == nil && isTest(f.Name.Name) {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

func isTest(name string) bool {
	if name == "TestMain" {
		return false
	}
	return strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Fuzz") || strings.HasPrefix(name, "Example")
}
