package modelserver

import (
	"bytes"
	"math"
	"strconv"
)

// splitSeries splits what follows a metric's name into the inside of its labels' braces and what comes after them.
func splitSeries(b []byte) (labels, rest []byte, ok bool) {
	b = trimBlanks(b)
	if len(b) == 0 || b[0] != '{' {
		return nil, b, true
	}
	end := labelsEnd(b)
	if end < 0 {
		return nil, nil, false
	}
	return b[1 : end-1], b[end:], true
}

// number reads a value, behind which a timestamp may stand. What is not a number is refused, and so are Go's own
// notations, which the format does not have.
func number(b []byte) (float64, bool) {
	b = trimBlanks(b)
	if i := bytes.IndexAny(b, " \t"); i >= 0 {
		b = b[:i]
	}
	if bytes.ContainsAny(b, "pP_") {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
	return v, err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// labelValue returns the value of a label, as it stands between its quotes; nothing if it is not there.
func labelValue(labels []byte, name string) []byte {
	for {
		i := bytes.IndexByte(labels, '=')
		if i < 0 {
			return nil
		}
		key := labels[:i]
		labels = trimBlanks(labels[i+1:])
		if len(labels) == 0 || labels[0] != '"' {
			return nil
		}
		end := valueEnd(labels)
		if end < 0 {
			return nil
		}
		if string(bytes.Trim(key, ", \t")) == name {
			return labels[1:end]
		}
		labels = labels[end+1:]
	}
}

// labelNumber returns the value of a label that is a number, 0 if it is not or is not there.
func labelNumber(labels []byte, name string) int {
	n, err := strconv.Atoi(string(labelValue(labels, name)))
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// valueEnd returns the place of the quote that closes the value with which b begins, or -1.
func valueEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			return -1
		}
		i += j
		escapes := 0
		for b[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
	return -1
}

// labelsEnd returns the length of the label set with which b begins, or -1 if it does not end. Braces inside quoted
// label values do not count.
func labelsEnd(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '}':
			return i + 1
		case '"':
			end := valueEnd(b[i:])
			if end < 0 {
				return -1
			}
			i += end
		}
	}
	return -1
}

// trimBlanks cuts the blanks at the start.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && blank(b[0]) {
		b = b[1:]
	}
	return b
}

func blank(c byte) bool { return c == ' ' || c == '\t' }
