package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// A Problem is an error in a text, or (as a warning) a setting that should change.
type Problem struct {
	Line, Column int    // from 1; 0 without a single place
	Path         string // of the field, such as plugins[2].type; empty for the whole text
	Message      string // the problem and its fix
}

// String formats the problem on one line.
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

// TextError contains all problems of a text, in the order of its lines.
type TextError []Problem

// shownProblems is the number of problems in the text of an error: a wrong text of 1 MiB can have 100,000.
const shownProblems = 100

// Error returns a line for each of the first problems, and the number of the others.
func (e TextError) Error() string {
	lines := make([]string, 0, shownProblems+1)
	for _, problem := range e[:min(len(e), shownProblems)] {
		lines = append(lines, problem.String())
	}
	if others := len(e) - shownProblems; others > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", others))
	}
	return strings.Join(lines, "\n")
}

// sortByLine returns problems in the order of their lines.
func sortByLine(problems []Problem) []Problem {
	sorted := slices.Clone(problems)
	slices.SortStableFunc(sorted, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return sorted
}

// Nearest returns the most similar name to a misspelled one, or nothing.
func Nearest(misspelled string, names []string) string {
	best, least := "", max(2, len(misspelled)/3)+1
	for _, name := range names {
		if d := editDistance(strings.ToLower(misspelled), strings.ToLower(name), least); d < least {
			best, least = name, d
		}
	}
	return best
}

// Hint names the most similar name, or all names if none is similar.
func Hint(misspelled string, names []string) string {
	if name := Nearest(misspelled, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	if len(names) == 0 {
		return "leave it out"
	}
	return "use one of " + strings.Join(names, ", ")
}

// editDistance returns the number of letters to change, add or remove to convert one word to the other, or the limit if it is
// more.
func editDistance(a, b string, limit int) int {
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
