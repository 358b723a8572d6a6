package metrics

import (
	"strings"
	"unicode/utf8"
)

// Limits of what clients can do to the number of series and to their size.
const (
	maxValues = 1000 // of a label
	maxSeries = 1000 // sets of labels; each has about two hundred series
	maxLength = 256  // bytes of a value
	otherName = "other"
)

// limiter bounds the values of a label that clients choose. It is not safe for concurrent use.
type limiter struct {
	most   int
	seen   map[string]string // each to itself: callers' strings may be parts of something large
	pinned map[string]string
}

func newLimiter(most int) *limiter {
	return &limiter{most: most, seen: map[string]string{}, pinned: map[string]string{}}
}

// pin says that a value is always allowed.
func (l *limiter) pin(v string) {
	v = strings.Clone(printable(v))
	l.pinned[v] = v
}

// bound returns the value, as a label can have it, or "other" if there are too many. What it has once returned it returns
// again. The result refers to nothing that the caller has.
func (l *limiter) bound(v string) string {
	if v == "" {
		return ""
	}
	v = printable(v)
	if own, known := l.pinned[v]; known {
		return own
	}
	if own, known := l.seen[v]; known {
		return own
	}
	if len(l.seen) >= l.most {
		return otherName
	}
	v = strings.Clone(v)
	l.seen[v] = v
	return v
}

// printable returns what a label can have of a string: valid UTF-8, and not more than so much of it.
func printable(v string) string {
	if len(v) > maxLength {
		end := maxLength
		for end > maxLength-utf8.UTFMax && !utf8.RuneStart(v[end]) {
			end--
		}
		v = v[:end]
	}
	return strings.ToValidUTF8(v, "?")
}
