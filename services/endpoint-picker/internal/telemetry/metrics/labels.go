package metrics

import (
	"strings"
	"unicode/utf8"
)

// Limits on the number and size of series that clients can cause.
const (
	maxValues = 1000 // per label
	maxSeries = 1000 // sets of labels; each has about two hundred series
	maxLength = 256  // bytes of a value
	otherName = "other"
)

// limiter limits the values of a label that clients choose. It is not safe for concurrent use.
type limiter struct {
	most   int
	copies map[string]string // maps each value to its own copy: callers' strings may be parts of large ones
	pinned map[string]string
}

func newLimiter(most int) *limiter {
	return &limiter{most: most, copies: map[string]string{}, pinned: map[string]string{}}
}

// allowValue makes a value always allowed.
func (l *limiter) allowValue(v string) {
	v = strings.Clone(toPrintable(v))
	l.pinned[v] = v
}

// boundLabel returns the value in the form of a label, or "other" if there are too many values. A returned value stays allowed.
// The result does not refer to memory of the caller.
func (l *limiter) boundLabel(v string) string {
	if v == "" {
		return ""
	}
	v = toPrintable(v)
	if own, known := l.pinned[v]; known {
		return own
	}
	if own, known := l.copies[v]; known {
		return own
	}
	if len(l.copies) >= l.most {
		return otherName
	}
	v = strings.Clone(v)
	l.copies[v] = v
	return v
}

// findLabel is boundLabel for a value that does not stay allowed.
func (l *limiter) findLabel(v string) string {
	v = toPrintable(v)
	_, pinned := l.pinned[v]
	if _, seen := l.copies[v]; v == "" || pinned || seen || len(l.copies) < l.most {
		return v
	}
	return otherName
}

// toPrintable returns valid UTF-8 of limited length.
func toPrintable(v string) string {
	if len(v) > maxLength {
		end := maxLength
		for end > maxLength-utf8.UTFMax && !utf8.RuneStart(v[end]) {
			end--
		}
		v = v[:end]
	}
	return strings.ToValidUTF8(v, "?")
}
