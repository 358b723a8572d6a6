package api

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"

	maxAccept = 1024 // bytes of an Accept header
)

// encoding is how a client wants objects.
type encoding struct {
	format       wire.Format
	metadataOnly bool
}

// negotiateEncoding returns the first encoding of an Accept header that exists, by quality. Custom kinds have no protobuf.
func negotiateEncoding(h http.Header, stored wire.Format) (encoding, error) {
	accept := strings.Join(h.Values("Accept"), ",")
	if accept == "" {
		return encoding{format: wire.JSON}, nil
	}
	if len(accept) > maxAccept {
		return encoding{}, badRequestError("the Accept header is longer than %d bytes", maxAccept)
	}
	for _, clause := range parseAccept(accept) {
		if e, ok := clause.toEncoding(stored); ok {
			return e, nil
		}
	}
	return encoding{}, statusError(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"only the following media types are accepted: application/json, application/vnd.kubernetes.protobuf")
}

type acceptClause struct {
	media   string
	params  map[string]string
	quality float64
}

// parseAccept returns the parts of an Accept header, the preferred first.
func parseAccept(accept string) []acceptClause {
	var parsed []acceptClause
	for text := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(text)
		if err != nil {
			continue
		}
		c := acceptClause{media: media, params: params, quality: 1}
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			c.quality = q
		}
		if c.quality > 0 {
			parsed = append(parsed, c)
		}
	}
	slices.SortStableFunc(parsed, func(a, b acceptClause) int { return cmp.Compare(b.quality, a.quality) })
	return parsed
}

func (c acceptClause) toEncoding(stored wire.Format) (encoding, bool) {
	var e encoding
	switch c.media {
	case jsonType, "*/*", "application/*":
		e.format = wire.JSON
	case protobufType:
		e.format = wire.Protobuf
	default:
		return e, false
	}
	switch c.params["as"] {
	case "":
		return e, e.format == wire.JSON || stored == wire.Protobuf
	case "PartialObjectMetadata", "PartialObjectMetadataList":
		e.metadataOnly = true
		return e, c.params["g"] == metav1.GroupName && c.params["v"] == "v1"
	}
	return e, false // a Table is for people
}

// errorFormat returns the format of an error.
func errorFormat(h http.Header) wire.Format {
	accept := strings.Join(h.Values("Accept"), ",")
	if strings.Contains(accept, protobufType) && !strings.Contains(accept, jsonType) && !strings.Contains(accept, "*") {
		return wire.Protobuf
	}
	return wire.JSON
}
