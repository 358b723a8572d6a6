package tracing

import (
	"encoding/hex"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// parent is the content of a traceparent.
type parent struct {
	trace   [16]byte
	span    [8]byte
	sampled bool
}

// Offsets in a traceparent, "00-<trace>-<span>-<flags>" in lower case hexadecimal.
const (
	traceAt, spanAt, flagsAt = 3, 36, 53
	length                   = 55
	flagSampled              = 1
)

// parseTraceparent parses a traceparent of W3C's trace context.
func parseTraceparent(s string) (p parent, valid bool) {
	if len(s) < length || s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return parent{}, false
	}
	var version, flags [1]byte
	if !decodeHex(version[:], s) || !decodeHex(p.trace[:], s[traceAt:]) || !decodeHex(p.span[:], s[spanAt:]) || !decodeHex(flags[:],
		s[flagsAt:]) {
		return parent{}, false
	}
	if !hasValidEnd(version[0], s[length:]) || p.trace == [16]byte{} || p.span == [8]byte{} {
		return parent{}, false
	}
	p.sampled = flags[0]&flagSampled != 0
	return p, true
}

// hasValidEnd reports whether the rest of a traceparent is valid for its version: later versions may have more, after another dash.
func hasValidEnd(version byte, rest string) bool {
	switch version {
	case 0:
		return rest == ""
	case 0xff:
		return false
	}
	return rest == "" || rest[0] == '-'
}

// decodeHex decodes the beginning of s, which is long enough, into b.
func decodeHex(b []byte, s string) bool {
	for i := range b {
		high, low := hexDigit(s[2*i]), hexDigit(s[2*i+1])
		if high > 15 || low > 15 {
			return false
		}
		b[i] = high<<4 | low
	}
	return true
}

// hexDigit returns the value of a hexadecimal digit, or more than 15 for other characters, including upper case.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// formatTraceparent returns the traceparent of a sampled span.
func formatTraceparent(s request.Span) string {
	b := make([]byte, 0, length)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, s.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, s.ID[:])
	return string(append(b, "-01"...))
}
