package plan

import "fmt"

// Problem is why something is not as it is wanted: the reason and the message of a condition. The zero value is no problem.
type Problem struct{ Reason, Message string }

// NewProblem formats the message of a problem.
func NewProblem[R ~string](reason R, format string, args ...any) Problem {
	return Problem{Reason: string(reason), Message: fmt.Sprintf(format, args...)}
}

// IsSet reports whether there is a problem.
func (p Problem) IsSet() bool { return p != Problem{} }
