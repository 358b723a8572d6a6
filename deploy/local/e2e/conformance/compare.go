package conformance

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is the comparison of one test.
type Row struct {
	Test     string
	Outcome  Outcome // empty: the test has no result
	Took     time.Duration
	Expected string
	Reason   string // why the test need not pass
	// Difference says how the result differs from the expected one. It is empty if the result is as expected.
	Difference string
}

// noResult is the difference of a test that the suite did not finish.
const noResult = "has no result"

// Compare returns a row for each test that is expected or has a result, sorted by name.
func Compare(e *Expectations, results []Result) []Row {
	rows := map[string]Row{}
	for _, name := range e.Pass {
		rows[name] = Row{Test: name, Expected: "pass", Difference: noResult}
	}
	for _, x := range e.Fail {
		rows[x.Test] = Row{Test: x.Test, Expected: "fail", Reason: x.Reason, Difference: noResult}
	}
	for _, x := range e.Unstable {
		rows[x.Test] = Row{Test: x.Test, Expected: "pass or fail", Reason: x.Reason, Difference: noResult}
	}
	for _, x := range e.Skip {
		rows[x.Test] = Row{Test: x.Test, Expected: "skip", Reason: x.Reason, Difference: noResult}
	}
	for _, r := range results {
		if r.Test == "" || r.Subtest != "" {
			continue
		}
		row, ok := rows[r.Test]
		if !ok {
			row = Row{Test: r.Test}
		}
		row.Outcome, row.Took, row.Difference = r.Outcome, r.Took, e.difference(r, results)
		rows[r.Test] = row
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b Row) int { return strings.Compare(a.Test, b.Test) })
}

// difference returns how the result of a test differs from the expected one.
func (e *Expectations) difference(r Result, results []Result) string {
	if skips := e.Skips(r.Test); skips || r.Outcome == Skip {
		switch {
		case !skips:
			return "was skipped"
		case r.Outcome != Skip:
			return "was not skipped"
		}
		return ""
	}
	named := func(x Exception) bool { return x.Test == r.Test }
	if i := slices.IndexFunc(e.Unstable, named); i >= 0 {
		return ""
	}
	if i := slices.IndexFunc(e.Fail, named); i >= 0 {
		if r.Outcome == Pass {
			return "passed: list it as one that passes"
		}
		return e.Fail[i].difference(results)
	}
	switch {
	case !slices.Contains(e.Pass, r.Test):
		return "is not listed in expected.yaml"
	case r.Outcome == Fail:
		return "failed"
	}
	return ""
}

// difference returns how the subtests of a failed test differ from the expected failure. A test fails if one of its subtests fails, so
// those above the expected failure fail, too.
func (x Exception) difference(results []Result) string {
	if x.Subtest == "" {
		return ""
	}
	var failed, others []string
	for _, r := range results {
		if r.Test != x.Test || r.Outcome != Fail {
			continue
		}
		failed = append(failed, r.Subtest)
		if r.Subtest != x.Subtest && !within(r.Subtest, x.Subtest) && !within(x.Subtest, r.Subtest) {
			others = append(others, r.Subtest)
		}
	}
	switch {
	case len(others) > 0:
		return "failed in " + strings.Join(outermost(others), ", ")
	case !slices.Contains(failed, x.Subtest):
		return "did not fail in " + x.Subtest
	}
	return ""
}

// outermost returns the subtests that are not part of another one of them.
func outermost(subtests []string) []string {
	var kept []string
	for _, s := range subtests {
		if !slices.ContainsFunc(subtests, func(outer string) bool { return within(s, outer) }) {
			kept = append(kept, s)
		}
	}
	return kept
}

// within reports whether a subtest is part of another one, or of the whole test if outer is empty.
func within(subtest, outer string) bool {
	return outer == "" || strings.HasPrefix(subtest, outer+"/")
}

// WriteTable writes the rows as a table, and the differences below it.
func WriteTable(w io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TEST\tRESULT\tSECONDS\tEXPECTED\tREASON")
	for _, r := range rows {
		fmt.Fprintf(table, "%s\t%s\t%.1f\t%s\t%s\n", r.Test, r.Outcome, r.Took.Seconds(), r.Expected, r.Reason)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	for _, r := range rows {
		if r.Difference == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", r.Test, r.Difference); err != nil {
			return fmt.Errorf("write table: %w", err)
		}
	}
	return nil
}

// Differences counts the rows that are not as expected.
func Differences(rows []Row) int {
	n := 0
	for _, r := range rows {
		if r.Difference != "" {
			n++
		}
	}
	return n
}
