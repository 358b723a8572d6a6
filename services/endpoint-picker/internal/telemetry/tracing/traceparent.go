package tracing

import (
	"encoding/hex"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Offsets in a traceparent, "00-<trace>-<span>-<flags>" in lower case hexadecimal.
const (
	traceAt, spanAt, flagsAt = 3, 36, 53
	length                   = 55
	flagSampled              = 1
)

// parseTraceparent parses a traceparent of W3C's trace context.
func parseTraceparent(s string) (parent request.Span, valid bool) {
	if len(s) < length || s[traceAt-1] != '-' || s[spanAt-1] != '-' || s[flagsAt-1] != '-' {
		return request.Span{}, false
	}
	var version, flags [1]byte
	if !decodeHex(version[:], s) || !decodeHex(parent.Trace[:], s[traceAt:]) || !decodeHex(parent.ID[:], s[spanAt:]) ||
		!decodeHex(flags[:], s[flagsAt:]) {
		return request.Span{}, false
	}
	if !hasValidEnd(version[0], s[length:]) || parent.Trace == [16]byte{} || parent.ID == [8]byte{} {
		return request.Span{}, false
	}
	parent.Sampled = flags[0]&flagSampled != 0
	return parent, true
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

// decodeHex decodes the beginning of s, which is long enough, into b. Upper case is invalid.
func decodeHex(b []byte, s string) bool {
	s = s[:hex.EncodedLen(len(b))]
	_, err := hex.Decode(b, []byte(s))
	return err == nil && !strings.ContainsAny(s, "ABCDEF")
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
