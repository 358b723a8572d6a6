// Package depcheck lets a test assert that a package does not depend on other packages, directly or indirectly. The depguard
// linter checks only direct imports; use depguard to forbid packages such as os, which almost every package imports
// indirectly through fmt.
package depcheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// listedPackage contains the fields of `go list -json` that this package uses.
type listedPackage struct {
	ImportPath string
	Imports    []string
	DepOnly    bool
}

// AssertNoDependency fails the test for each package matched by pattern that depends on a forbidden package. pattern is
// an argument of `go list`, relative to the directory of the test. A forbidden path that ends in "/..." matches the path
// itself and all paths below it. Imports of test files are ignored.
func AssertNoDependency(tb testing.TB, pattern string, forbidden ...string) {
	tb.Helper()
	packages, err := listPackages(tb, pattern)
	if err != nil {
		tb.Fatalf("list dependencies of %s: %v", pattern, err)
	}
	for _, chain := range findChains(packages, forbidden) {
		tb.Errorf("forbidden dependency: %s", strings.Join(chain, " imports "))
	}
}

func listPackages(tb testing.TB, pattern string) ([]listedPackage, error) {
	tb.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(tb.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,DepOnly", pattern)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	packages, err := decodePackages(&stdout)
	if err == nil && len(packages) == 0 {
		return nil, errors.New("no package matches the pattern")
	}
	return packages, err
}

func decodePackages(r io.Reader) ([]listedPackage, error) {
	var packages []listedPackage
	for decoder := json.NewDecoder(r); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages, nil
		}
		if err != nil {
			return nil, fmt.Errorf("decode go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// findChains returns one of the shortest import chains from each matched package to each forbidden package that it depends
// on.
func findChains(packages []listedPackage, forbidden []string) [][]string {
	imports := map[string][]string{}
	for _, p := range packages {
		imports[p.ImportPath] = p.Imports
	}
	var chains [][]string
	for _, p := range packages {
		if !p.DepOnly {
			chains = append(chains, searchFrom(p.ImportPath, imports, forbidden)...)
		}
	}
	return chains
}

// searchFrom is a breadth-first search that stops at forbidden packages, so it does not report the imports of a forbidden
// package.
func searchFrom(root string, imports map[string][]string, forbidden []string) [][]string {
	var chains [][]string
	seen := map[string]bool{root: true}
	for queue := [][]string{{root}}; len(queue) > 0; queue = queue[1:] {
		chain := queue[0]
		for _, next := range imports[chain[len(chain)-1]] {
			if seen[next] {
				continue
			}
			seen[next] = true
			extended := append(slices.Clone(chain), next)
			if isForbidden(next, forbidden) {
				chains = append(chains, extended)
			} else {
				queue = append(queue, extended)
			}
		}
	}
	return chains
}

func isForbidden(path string, forbidden []string) bool {
	return slices.ContainsFunc(forbidden, func(f string) bool {
		below, isTree := strings.CutSuffix(f, "/...")
		return path == below || isTree && strings.HasPrefix(path, below+"/")
	})
}
