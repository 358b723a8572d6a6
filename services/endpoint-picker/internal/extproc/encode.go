package extproc

import (
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// plain are the constant replies that only mean "continue", by kind. They are shared and read-only.
var plain = func() [len(outTags)]mem.BufferSlice {
	var all [len(outTags)]mem.BufferSlice
	for kind, t := range outTags {
		switch Kind(kind) {
		case RequestHeaders, RequestBody, ResponseHeaders, ResponseBody:
			all[kind] = buffers(appendField(nil, t, appendField(nil, replyCommon, nil)))
		case RequestTrailers, ResponseTrailers:
			all[kind] = buffers(appendField(nil, t, nil))
		}
	}
	return all
}()

func buffers(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }

// encode converts a reply to a ProcessingResponse in the wire format. It takes over the reply's body.
func encode(r *Reply) mem.BufferSlice {
	switch {
	case r.Kind == Immediate:
		return encodeRefusal(r.Refusal, r.Form)
	case r.Content == Streamed:
		return encodeStreamed(r)
	case r.Destination == "" && r.Headers == nil && r.Content == Same:
		return plain[r.Kind]
	}
	return encodeChanges(r)
}

// encodeChanges encodes a reply with changes. The picked endpoint is in a header, which replaces the client's own header of
// that name, and in metadata, for gateways that use it. On trailers it is only in metadata, because headers set there would
// become trailers.
func encodeChanges(r *Reply) mem.BufferSlice {
	out := make([]byte, 0, 320)
	if r.Kind == RequestTrailers {
		out = appendField(out, outRequestTrailers, nil)
	} else {
		common := make([]byte, 0, 160)
		if mutation := encodeHeaders(r); len(mutation) > 0 {
			common = appendField(common, commonHeaders, mutation)
		}
		if r.Content == Replaced {
			common = appendField(common, commonBody, encodeWhole(r.Body))
		}
		if r.Destination != "" {
			common = appendInteger(common, commonClearRoute, 1)
		}
		out = appendOpening(out, outTags[r.Kind], fieldSize(replyCommon, len(common)))
		out = appendField(out, replyCommon, common)
	}
	if r.Destination != "" {
		out = appendField(out, outDynamicMetadata, encodeMetadata(r))
	}
	return buffers(out)
}

// encodeHeaders makes a HeaderMutation.
func encodeHeaders(r *Reply) []byte {
	mutation := make([]byte, 0, 128)
	if r.Destination != "" {
		mutation = appendSetHeader(mutation, headerDestination, r.Destination)
	}
	if r.Headers == nil {
		return mutation
	}
	for _, h := range r.Headers.Set {
		mutation = appendSetHeader(mutation, h.Name, h.Value)
	}
	for _, name := range r.Headers.Remove {
		mutation = appendText(mutation, mutationRemove, name)
	}
	return mutation
}

// encodeMetadata makes the Struct of dynamic metadata.
func encodeMetadata(r *Reply) []byte {
	endpoint := appendField(nil, structFields, makeEntry(headerDestination, appendText(nil, valueText, r.Destination)))
	if len(r.Scores) > 0 {
		var scores []byte
		for _, s := range r.Scores {
			scores = appendField(scores, structFields, makeEntry(s.Endpoint.Address(), appendNumber(nil, s.Total)))
		}
		endpoint = appendField(endpoint, structFields, makeEntry(keyScores, appendField(nil, valueStruct, scores)))
	}
	return appendField(nil, structFields, makeEntry(lbNamespace, appendField(nil, valueStruct, endpoint)))
}

// appendNumber appends a number as a Value.
func appendNumber(b []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(append(b, byte(valueNumber)), math.Float64bits(v))
}

// encodeWhole makes a BodyMutation that replaces a body, or a piece, and frees its input.
func encodeWhole(body mem.Buffer) []byte {
	if body == nil {
		return appendField(nil, mutationWhole, nil)
	}
	defer body.Free()
	return appendField(make([]byte, 0, body.Len()+8), mutationWhole, body.ReadOnlyData())
}

// encodeStreamed forwards a piece of a body by reference. The end-of-stream field precedes it on the wire, so that nothing
// follows.
func encodeStreamed(r *Reply) mem.BufferSlice {
	size := 0
	if r.Body != nil {
		size = r.Body.Len()
	}
	streamed := 0 // bytes of the StreamedBodyResponse
	if r.EndOfStream {
		streamed += 2
	}
	if size > 0 {
		streamed += fieldSize(bodyBytes, size)
	}
	mutation := fieldSize(mutationStreamed, streamed)
	common := fieldSize(commonBody, mutation)

	out := make([]byte, 0, 32)
	out = appendOpening(out, outTags[r.Kind], fieldSize(replyCommon, common))
	out = appendOpening(out, replyCommon, common)
	out = appendOpening(out, commonBody, mutation)
	out = appendOpening(out, mutationStreamed, streamed)
	if r.EndOfStream {
		out = appendInteger(out, bodyEndOfStream, 1)
	}
	if size == 0 {
		if r.Body != nil {
			r.Body.Free()
		}
		return buffers(out)
	}
	return mem.BufferSlice{mem.SliceBuffer(appendOpening(out, bodyBytes, size)), r.Body}
}

func encodeRefusal(r *exchange.Refusal, f exchange.Form) mem.BufferSlice {
	body, contentType := r.Body(f)
	out := appendField(nil, immediateStatus, appendInteger(nil, statusCode, uint64(r.Code)))
	headers := appendSetHeader(nil, headerContentType, contentType)
	if r.Reason != "" {
		headers = appendSetHeader(headers, headerDroppedReason, r.Reason)
	}
	if r.RetryAfter > 0 {
		headers = appendSetHeader(headers, headerRetryAfter, strconv.Itoa(int(r.RetryAfter/time.Second)))
	}
	out = appendField(out, immediateHeaders, headers)
	out = appendField(out, immediateBody, body)
	out = appendText(out, immediateDetails, "endpoint_picker_refused")
	return buffers(appendField(nil, outImmediateResponse, out))
}

// appendSetHeader appends a replacement of a header to a HeaderMutation.
func appendSetHeader(b []byte, key, value string) []byte {
	header := appendText(make([]byte, 0, 64), headerKey, key)
	header = appendText(header, headerRaw, value)
	option := appendField(make([]byte, 0, 80), optionHeader, header)
	option = appendInteger(option, optionAction, overwriteOrAdd)
	return appendField(b, mutationSet, option)
}

// makeEntry encodes an entry of a map from text to messages as a field's value.
func makeEntry(key string, value []byte) []byte {
	return appendField(appendText(nil, entryKey, key), entryValue, value)
}
