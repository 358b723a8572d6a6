package pickerconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is something in a configuration that cannot be used, or (as a warning) that is better done otherwise.
type Problem struct {
	Line, Column int    // from 1; 0 if the problem is of no one place
	Path         string // of the field, such as plugins[2].type; empty for the whole
	Message      string // what is wrong and how to mend it
}

// String returns the problem in one line.
func (p Problem) String() string {
	var s strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&s, "line %d, column %d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		s.WriteString(p.Path + ": ")
	}
	return s.String() + p.Message
}

// LoadError is all that is wrong with a configuration, in the order of its lines.
type LoadError []Problem

// Error returns a line for each.
func (e LoadError) Error() string {
	lines := make([]string, 0, len(e))
	for _, problem := range e {
		lines = append(lines, problem.String())
	}
	return strings.Join(lines, "\n")
}

func sortByLine(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// nearest returns the name that a misspelt one was probably meant to be, or nothing.
func nearest(misspelt string, names []string) string {
	best, least := "", max(2, len(misspelt)/3)+1
	for _, name := range names {
		if d := distance(strings.ToLower(misspelt), strings.ToLower(name), least); d < least {
			best, least = name, d
		}
	}
	return best
}

// meant is a hint at the nearest name, or at all of them if none is near.
func meant(misspelt string, names []string) string {
	if name := nearest(misspelt, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	if len(names) == 0 {
		return "leave it out"
	}
	return "use one of " + strings.Join(names, ", ")
}

// distance is how many letters must be changed, added or left out to make one word the other, or the limit if more.
func distance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}
