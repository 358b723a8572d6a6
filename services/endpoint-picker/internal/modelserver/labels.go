package modelserver

import (
	"bytes"
	"math"
	"strconv"
)

// splitSeries splits the text after a metric's name into the labels inside the braces and the rest.
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

// parseNumber parses a value, which a timestamp may follow. It refuses invalid numbers, and notations of Go that the format does
// not have.
func parseNumber(b []byte) (float64, bool) {
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

// labelValue returns the raw value of a label between its quotes, or nil.
func labelValue(labels []byte, name string) []byte {
	for {
		key, value, rest, ok := cutSeriesLabel(labels)
		if !ok {
			return nil
		}
		if string(key) == name {
			return value
		}
		labels = rest
	}
}

// cutSeriesLabel removes the first label, with its raw value, from those of a series. The name may be in quotes.
func cutSeriesLabel(labels []byte) (name, value, rest []byte, ok bool) {
	for len(labels) > 0 && (labels[0] == ',' || isBlank(labels[0])) {
		labels = labels[1:]
	}
	if name, labels, ok = cutName(labels); !ok {
		return nil, nil, nil, false
	}
	end := valueEnd(labels)
	if end < 0 {
		return nil, nil, nil, false
	}
	return name, labels[1:end], labels[end+1:], true
}

// cutName removes the name of a label, up to the opening quote of its value.
func cutName(labels []byte) (name, rest []byte, ok bool) {
	end := 0
	if len(labels) > 0 && labels[0] == '"' {
		end = max(valueEnd(labels), 0)
	}
	equals := bytes.IndexByte(labels[end:], '=')
	if equals < 0 {
		return nil, nil, false
	}
	name, rest = labels[:end+equals], trimBlanks(labels[end+equals+1:])
	for len(name) > 0 && isBlank(name[len(name)-1]) {
		name = name[:len(name)-1]
	}
	if end > 0 {
		name = bytes.Trim(name, `"`)
	}
	return name, rest, len(rest) > 0 && rest[0] == '"'
}

// labelNumber returns the numeric value of a label, 0 if it is missing or not a number.
func labelNumber(labels []byte, name string) int {
	n, err := strconv.Atoi(string(labelValue(labels, name)))
	if err != nil || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// valueEnd returns the offset of the closing quote of the value at the start of b, or -1.
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

// labelsEnd returns the length of the label set at the start of b, or -1 if it is incomplete. It ignores braces inside
// quoted label values.
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

// trimBlanks removes leading blanks.
func trimBlanks(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }
