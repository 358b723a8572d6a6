package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// Names that a lane forbids, as package.Name, and what to do instead.
var (
	// Sockets and processes belong to the system lane, and need no bubble to be wrong in the first one.
	sockets = map[string]string{
		"net.Listen": useMemory, "net.ListenPacket": useMemory, "net.ListenTCP": useMemory, "net.ListenUDP": useMemory,
		"net.ListenUnix": useMemory, "net.ListenConfig": useMemory, "net.Dial": useMemory, "net.DialTimeout": useMemory,
		"net.Dialer": useMemory, "tls.Listen": useMemory, "tls.Dial": useMemory, "tls.Dialer": useMemory, "http.ListenAndServe": useMemory,
		"httptest.NewServer": useMemory, "httptest.NewTLSServer": useMemory, "httptest.NewUnstartedServer": useMemory,
	}
	processes = map[string]string{
		"exec.Command": useTag, "exec.CommandContext": useTag, "os.StartProcess": useTag, "syscall.Exec": useTag,
		"syscall.ForkExec": useTag,
	}
	// Packages that start processes or API servers.
	systemPackages = map[string]string{
		"fairlead.dev/pkg/kubetest/cluster": useTag, "fairlead.dev/pkg/depcheck": useTag, "os/exec": useTag,
	}
	// Waiting by the clock of the machine.
	sleeps = map[string]string{
		"time.Sleep": useBubble, "time.Tick": useBubble, "time.NewTimer": useBubble, "time.NewTicker": useBubble, "time.After": useBubble,
		"time.AfterFunc": useBubble, "assert.Never": useBubble, "require.Never": useBubble, "context.WithTimeout": usePatience,
	}
	// Measuring by the clock of the machine.
	elapsed = map[string]string{"time.Since": useCount, "time.Until": useCount}
	// Measuring what all tests of a process share. testing.AllocsPerRun refuses parallel tests itself.
	measurements = []string{".ReadMemStats", ".NumGoroutine", ".Benchmark"}
	// Polling. The third argument is the time limit.
	polls = map[string]string{
		"assert.Eventually": usePatience, "require.Eventually": usePatience, "assert.EventuallyWithT": usePatience,
		"require.EventuallyWithT": usePatience, "assert.Eventuallyf": usePatience, "require.Eventuallyf": usePatience,
	}
)

// Remedies.
const (
	useMemory   = "use memnet or bufconn, or move the test to a file with //go:build system"
	useTag      = "move the test to a file with //go:build system"
	useBubble   = "run the test in a synctest bubble, or wait for the event"
	usePatience = "bound the wait by kubetest.Patience, or run the test in a synctest bubble"
	useAlone    = "remove t.Parallel: other tests add to what this one measures"
	useCount    = "count events, compare with a baseline of the same run, or run the test in a synctest bubble"
)

// checkFolders reports what the lanes of the test files in folders forbid.
func checkFolders(folders []string) ([]string, error) {
	var problems []string
	for _, folder := range folders {
		fset, packages, err := loadTests(folder)
		if err != nil {
			return nil, err
		}
		for _, p := range packages {
			problems = append(problems, checkPackage(fset, p)...)
		}
	}
	return problems, nil
}

func checkPackage(fset *token.FileSet, p *testPackage) []string {
	functions := functionsOf(p)
	common := checker{
		fset: fset, bubbles: functions.bubbleSpans(), benchmarks: functions.benchmarkSpans(),
		parallel: functions.parallelSpans(), measuring: functions.callersOf(measurements...), bounded: map[token.Pos]bool{},
	}
	var problems []string
	for _, file := range p.files {
		c := common
		c.file = file
		c.checkPackage()
		problems = append(problems, c.problems...)
	}
	return problems
}

// checker checks one file.
type checker struct {
	fset       *token.FileSet
	file       *testFile
	bubbles    spans
	benchmarks spans
	parallel   spans
	measuring  map[string]bool    // functions that measure what all tests share
	bounded    map[token.Pos]bool // names of called functions whose time limit is Patience
	problems   []string
}

func (c *checker) checkPackage() {
	lane := c.file.lanes[0]
	if lane == longLane {
		return
	}
	if lane == firstLane {
		for _, spec := range c.file.syntax.Imports {
			c.forbidName(spec, strings.Trim(spec.Path.Value, `"`), systemPackages)
		}
	}
	for _, declaration := range c.file.syntax.Decls {
		if c.benchmarks.containsPosition(declaration.Pos()) {
			continue
		}
		ast.Inspect(declaration, func(n ast.Node) bool {
			c.inspectNode(lane, n)
			return true
		})
	}
}

func (c *checker) inspectNode(lane string, n ast.Node) {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		c.checkName(lane, n, selectorName(n))
	case *ast.CallExpr:
		if name := calledName(n); c.measuring[name] && c.parallel.containsPosition(n.Pos()) {
			c.reportFinding(n, strings.TrimPrefix(name, "."), useAlone)
		}
		if hasPatience(n) {
			c.bounded[n.Fun.Pos()] = true
		} else if !c.bubbles.containsPosition(n.Pos()) {
			c.checkCall(n)
		}
	}
}

func (c *checker) checkCall(call *ast.CallExpr) {
	if isElapsed(call) {
		c.reportFinding(call, "time.Now().Sub", useCount)
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		c.forbidName(call, selectorName(s), polls)
	}
}

func (c *checker) checkName(lane string, n ast.Node, name string) {
	if lane == firstLane {
		c.forbidName(n, name, sockets)
		c.forbidName(n, name, processes)
	}
	if c.bubbles.containsPosition(n.Pos()) {
		return
	}
	c.forbidName(n, name, elapsed)
	if lane == firstLane && !c.bounded[n.Pos()] {
		c.forbidName(n, name, sleeps)
	}
}

// hasPatience reports whether an argument of a call is kubetest.Patience, or a multiple of it.
func hasPatience(call *ast.CallExpr) bool {
	found := false
	for _, argument := range call.Args {
		ast.Inspect(argument, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && selectorName(s) == "kubetest.Patience" {
				found = true
			}
			_, literal := n.(*ast.FuncLit)
			return !literal
		})
	}
	return found
}

// isElapsed reports whether a call is time.Now().Sub(…).
func isElapsed(call *ast.CallExpr) bool {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != "Sub" {
		return false
	}
	now, ok := s.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := now.Fun.(*ast.SelectorExpr)
	return ok && selectorName(f) == "time.Now"
}

func (c *checker) forbidName(n ast.Node, name string, names map[string]string) {
	if remedy := names[name]; remedy != "" {
		c.reportFinding(n, name, remedy)
	}
}

func (c *checker) reportFinding(n ast.Node, name, remedy string) {
	problem := fmt.Sprintf("%s: %s in the %s lane: %s", c.fset.Position(n.Pos()), name, c.file.lanes[0], remedy)
	if !slices.Contains(c.problems, problem) {
		c.problems = append(c.problems, problem)
	}
}

// selectorName returns package.Name of a selector, or x.Name of a field or method.
func selectorName(s *ast.SelectorExpr) string {
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}
