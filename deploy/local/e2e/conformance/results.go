// Package conformance reads the results of runs of two conformance suites, and compares them with the expected results: that of the Gateway
// API Inference Extension with expected.yaml, and that of the Gateway API with gateway.yaml. It also keeps the report of the latter.
package conformance

import (
	"regexp"
	"strings"
	"time"
)

// Outcome is the outcome of a test.
type Outcome string

// Outcomes, as the testing package prints them.
const (
	Pass Outcome = "PASS"
	Fail Outcome = "FAIL"
	Skip Outcome = "SKIP"
)

// suiteTest is the name of the test that runs the suite: the tests of the suite are its subtests.
const suiteTest = "TestConformance"

// Result is the result of a test of the suite, or of one of its subtests.
type Result struct {
	Test    string // name of the test, or empty for the suite as a whole
	Subtest string // path below the test; empty for the test itself
	Outcome Outcome
	Took    time.Duration
}

// resultLine matches a result in the output of a test binary with the flag -test.v=test2json. With that flag the binary prints the result
// of a subtest as soon as the subtest ends, and marks the line with ^V.
var resultLine = regexp.MustCompile(`\x16--- (PASS|FAIL|SKIP): ` + suiteTest + `(?:/(\S+))? \(([0-9.]+s)\)$`)

// ParseLine returns the result in a line of the output of the suite, if there is one.
func ParseLine(line string) (Result, bool) {
	groups := resultLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if groups == nil {
		return Result{}, false
	}
	took, err := time.ParseDuration(groups[3])
	if err != nil {
		return Result{}, false
	}
	test, subtest, _ := strings.Cut(groups[2], "/")
	return Result{Test: test, Subtest: subtest, Outcome: Outcome(groups[1]), Took: took}, true
}
