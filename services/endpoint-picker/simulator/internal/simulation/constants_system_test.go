//go:build system

package simulation

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// constants are the tuned numbers of package estimate, and the files of a copy in which the environment changes them: the constants become
// variables there, so that one program can run with each of them changed. The package itself stays as it is.
//
// A constant that an array or another constant is declared with stays one. A program with another value of it has to be built.
type constants struct {
	all      []tuned
	overlay  map[string][]byte      // contents by path
	declared map[string]declaration // of constants that stay, by name
}

// declaration is the place of a constant's value.
type declaration struct {
	path  string
	value edit
}

// variable is the environment variable with a changed number, as name=value.
const variable = "SENSITIVITY"

// tunedFile is the file whose numbers are all tuned. In other files those are whose comment has tunedMark.
const (
	tunedFile = "constants.go"
	tunedMark = "½"
)

// sourceOfEstimate is the package with the constants.
const sourceOfEstimate = "../../../internal/estimate"

// edit replaces a part of a file.
type edit struct {
	from, to int
	text     string
}

// rewriter makes the copy.
type rewriter struct {
	fset   *token.FileSet
	info   *types.Info
	pkg    *types.Package
	files  map[string]*ast.File // by path
	edits  map[string][]edit    // by path
	result constants
	names  map[types.Object]string
	specs  map[types.Object]declaration
}

// readConstants reads the package.
func readConstants() (*constants, error) {
	folder, err := filepath.Abs(sourceOfEstimate)
	if err != nil {
		return nil, err
	}
	r := &rewriter{
		fset: token.NewFileSet(), files: map[string]*ast.File{}, edits: map[string][]edit{}, names: map[types.Object]string{}, specs: map[types.Object]declaration{},
		info:   &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}},
		result: constants{overlay: map[string][]byte{}, declared: map[string]declaration{}},
	}
	exports, err := exportFiles(folder)
	if err != nil {
		return nil, err
	}
	from := importer.ForCompiler(r.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	if err := r.check(folder, from); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(r.files)) {
		r.collect(path)
	}
	for _, file := range r.files {
		r.findDeclaring(file)
	}
	for path, file := range r.files {
		r.replaceUses(path, file)
	}
	for path, edits := range r.edits {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		r.result.overlay[path] = apply(text, edits)
	}
	r.result.overlay[filepath.Join(folder, "sensitivity_variables.go")] = r.variables()
	return &r.result, r.recheck(from)
}

// check parses and type-checks the package.
func (r *rewriter) check(folder string, from types.Importer) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		return err
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(r.fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		r.files[path] = file
		files = append(files, file)
	}
	r.pkg, err = (&types.Config{Importer: from}).Check("estimate", r.fset, files, r.info)
	return err
}

// recheck type-checks the copy.
func (r *rewriter) recheck(from types.Importer) error {
	var files []*ast.File
	for path, file := range r.files {
		if r.result.overlay[path] == nil {
			files = append(files, file)
		}
	}
	for path, text := range r.result.overlay {
		file, err := parser.ParseFile(r.fset, path, text, 0)
		if err != nil {
			return err
		}
		files = append(files, file)
	}
	_, err := (&types.Config{Importer: from}).Check("estimate", r.fset, files, nil)
	return err
}

// exportFiles returns the files with the compiled types of all packages that a package imports, and those of the file that the copy adds.
func exportFiles(folder string) (map[string]string, error) {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", ".", "os", "strconv", "strings")
	list.Dir = folder
	out, err := list.Output()
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, err
		}
		files[p.ImportPath] = p.Export
	}
}

// collect adds the numbers of a file.
func (r *rewriter) collect(path string) {
	for _, d := range r.files[path].Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range group.Specs {
			spec, ok := s.(*ast.ValueSpec)
			if !ok || filepath.Base(path) != tunedFile && !strings.Contains(spec.Doc.Text()+spec.Comment.Text(), tunedMark) {
				continue
			}
			for i, name := range spec.Names {
				if object, ok := r.info.Defs[name].(*types.Const); ok {
					r.add(name.Name, object.Val(), object.Type())
					r.names[object] = name.Name
					r.specs[object] = declaration{path, r.editOf(spec.Values[i], "")}
				}
			}
			for _, value := range spec.Values {
				r.collectFields(path, spec.Names[0].Name, value)
			}
		}
	}
}

// collectFields adds the numbers in the literal of a variable, and replaces them.
func (r *rewriter) collectFields(path, of string, value ast.Expr) {
	literal, ok := value.(*ast.CompositeLit)
	if !ok {
		return
	}
	for _, element := range literal.Elts {
		field := element.(*ast.KeyValueExpr)
		name := of + "." + field.Key.(*ast.Ident).Name
		r.add(name, r.info.Types[field.Value].Value, r.info.Types[field.Value].Type)
		r.replace(path, field.Value, fmt.Sprintf("varied(%q, %v)", name, r.info.Types[field.Value].Value.ExactString()))
	}
}

func (r *rewriter) add(name string, value constant.Value, t types.Type) {
	number, _ := constant.Float64Val(value)
	basic, ok := t.(*types.Basic)
	r.result.all = append(r.result.all, tuned{name: name, value: number, whole: ok && basic.Info()&types.IsInteger > 0})
}

// findDeclaring finds the constants that arrays and other constants are declared with, and keeps them as they are.
func (r *rewriter) findDeclaring(file *ast.File) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST {
				r.keep(n)
			}
		case *ast.ArrayType:
			if n.Len != nil {
				r.keep(n.Len)
			}
		}
		return true
	})
}

// keep keeps the constants in a declaration.
func (r *rewriter) keep(declared ast.Node) {
	ast.Inspect(declared, func(n ast.Node) bool {
		if use, ok := n.(*ast.Ident); ok && r.names[r.info.Uses[use]] != "" {
			r.result.declared[use.Name] = r.specs[r.info.Uses[use]]
			delete(r.names, r.info.Uses[use])
		}
		return true
	})
}

// replaceUses makes variables of the other constants wherever code uses them.
func (r *rewriter) replaceUses(path string, file *ast.File) {
	var parents []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			parents = parents[:len(parents)-1]
			return true
		}
		if use, ok := n.(*ast.Ident); ok && r.names[r.info.Uses[use]] != "" {
			r.replace(path, use, fmt.Sprintf("%s(varied_%s)", r.typeOf(use, parents), use.Name))
		}
		parents = append(parents, n)
		return true
	})
}

// typeOf returns the type that a constant has where it is used: that of the whole constant expression.
func (r *rewriter) typeOf(use ast.Expr, parents []ast.Node) string {
	for _, parent := range slices.Backward(parents) {
		outer, ok := parent.(ast.Expr)
		if _, call := parent.(*ast.CallExpr); !ok || call || r.info.Types[outer].Value == nil {
			break
		}
		use = outer
	}
	return types.TypeString(types.Default(r.info.Types[use].Type), func(p *types.Package) string {
		if p == r.pkg {
			return ""
		}
		return p.Name()
	})
}

func (r *rewriter) replace(path string, n ast.Node, text string) {
	r.edits[path] = append(r.edits[path], r.editOf(n, text))
}

func (r *rewriter) editOf(n ast.Node, text string) edit {
	return edit{r.fset.Position(n.Pos()).Offset, r.fset.Position(n.End()).Offset, text}
}

// apply returns the text with edits.
func apply(text []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	var edited []byte
	at := 0
	for _, e := range edits {
		edited = append(append(edited, text[at:e.from]...), e.text...)
		at = e.to
	}
	return append(edited, text[at:]...)
}

// variables returns the file with the variables.
func (r *rewriter) variables() []byte {
	text := fmt.Appendf(nil, `package estimate

import ("os"; "strconv"; "strings")

// varied returns the value, or what the environment has in its place.
func varied(name string, value float64) float64 {
	changed, number, _ := strings.Cut(os.Getenv(%q), "=")
	if changed != name {
		return value
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		panic(err)
	}
	return value
}

var (
`, variable)
	for _, name := range slices.Sorted(maps.Values(r.names)) {
		text = fmt.Appendf(text, "\tvaried_%[1]s = varied(%[1]q, %[1]s)\n", name)
	}
	return append(text, ")\n"...)
}

// with returns the copy with another value of a constant that stays one.
func (c *constants) with(name string, value float64) (*constants, error) {
	d := c.declared[name]
	text, err := os.ReadFile(d.path)
	if err != nil {
		return nil, err
	}
	d.value.text = strconv.Itoa(int(value)) // lengths are whole numbers
	return &constants{overlay: map[string][]byte{d.path: apply(text, []edit{d.value})}}, nil
}

// write writes the copy to a folder, and returns the file for the flag -overlay.
func (c *constants) write(folder string) (string, error) {
	replace := map[string]string{}
	for path, text := range c.overlay {
		to := filepath.Join(folder, filepath.Base(path))
		replace[path] = to
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "overlay.json")
	return file, os.WriteFile(file, text, 0o600)
}

// Every number of the file is found, and the copy has correct types.
func TestConstantsBecomeVariables(t *testing.T) {
	t.Parallel()
	c, err := readConstants()
	require.NoError(t, err)
	found := map[string]tuned{}
	for _, one := range c.all {
		found[one.name] = one
	}
	assert.Equal(t, tuned{"progressCredit", 0.75, false}, found["progressCredit"])
	assert.Equal(t, tuned{"maxPrompt", 1 << 27, true}, found["maxPrompt"])
	assert.Equal(t, tuned{"priorHits", 1, false}, found["priorHits"])
	assert.Equal(t, tuned{"priorCosts.PerToken", 50e-6, false}, found["priorCosts.PerToken"])
	text, err := os.ReadFile(filepath.Join(sourceOfEstimate, tunedFile))
	require.NoError(t, err)
	declared := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "//") && strings.Contains(line, " = ") && !strings.HasPrefix(line, "var ") {
			declared++
		}
	}
	assert.Len(t, c.all, declared+5, "and five of priorCosts")
	assert.Contains(t, string(c.overlay[mustAbs(t, tunedFile)]), `PerToken: varied("priorCosts.PerToken",`)
	assert.Contains(t, string(c.overlay[mustAbs(t, "sequence.go")]), "varied_maxOverrun")
	assert.ElementsMatch(t, []string{"distances", "distancesPerOctave", "maxPending", "recentPrompts"}, slices.Collect(maps.Keys(c.declared)))
	changed, err := c.with("distancesPerOctave", 8)
	require.NoError(t, err)
	assert.Contains(t, string(changed.overlay[mustAbs(t, tunedFile)]), "distancesPerOctave = 8\n")
}

func mustAbs(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(sourceOfEstimate, name))
	require.NoError(t, err)
	return path
}
