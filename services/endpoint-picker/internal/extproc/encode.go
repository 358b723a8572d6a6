package extproc

import "google.golang.org/grpc/mem"

// plain are the replies that say nothing but "go on", by kind. They are sent as they are: nobody writes to them.
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

// encode turns a reply into a ProcessingResponse on the wire. The reply's body goes over into it.
func encode(r *Reply) mem.BufferSlice {
	switch {
	case r.Kind == Immediate:
		return encodeRefusal(r.Refusal)
	case r.Streamed:
		return encodeBody(r)
	case r.Destination != "":
		return encodeDestination(r)
	case r.Picked != "":
		common := appendField(nil, commonHeaders, appendSetHeader(nil, headerPicked, r.Picked))
		return buffers(appendField(nil, outResponseHeaders, appendField(nil, replyCommon, common)))
	}
	return plain[r.Kind]
}

// encodeDestination names the endpoint: in a header, which replaces the client's own of that name, and in metadata, for
// gateways that go by it. On trailers it is in metadata alone, as headers set there would be trailers.
func encodeDestination(r *Reply) mem.BufferSlice {
	out := make([]byte, 0, 256)
	if r.Kind == RequestTrailers {
		out = appendField(out, outRequestTrailers, nil)
	} else {
		common := make([]byte, 0, 128)
		common = appendField(common, commonHeaders, appendSetHeader(make([]byte, 0, 96), headerDestination, r.Destination))
		common = appendInteger(common, commonClearRoute, 1)
		out = appendOpening(out, outTags[r.Kind], fieldSize(replyCommon, len(common)))
		out = appendField(out, replyCommon, common)
	}
	endpoint := appendField(nil, structFields, appendEntry(nil, headerDestination, appendText(nil, valueText, r.Destination)))
	namespace := appendEntry(nil, lbNamespace, appendField(nil, valueStruct, endpoint))
	return buffers(appendField(out, outDynamicMetadata, appendField(nil, structFields, namespace)))
}

// encodeBody passes a piece of a body on, by reference. Its end goes before it on the wire, so that nothing follows.
func encodeBody(r *Reply) mem.BufferSlice {
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
		return buffers(out)
	}
	return mem.BufferSlice{mem.SliceBuffer(appendOpening(out, bodyBytes, size)), r.Body}
}

func encodeRefusal(r *Refusal) mem.BufferSlice {
	out := appendField(nil, immediateStatus, appendInteger(nil, statusCode, uint64(r.Code)))
	if r.Reason != "" {
		out = appendField(out, immediateHeaders, appendSetHeader(nil, headerDroppedReason, r.Reason))
	}
	out = appendText(out, immediateBody, r.Text)
	out = appendText(out, immediateDetails, "endpoint_picker_refused")
	return buffers(appendField(nil, outImmediateResponse, out))
}

// appendSetHeader appends a HeaderMutation that sets one header, whatever it was.
func appendSetHeader(b []byte, key, value string) []byte {
	header := appendText(make([]byte, 0, 64), headerKey, key)
	header = appendText(header, headerRaw, value)
	option := appendField(make([]byte, 0, 80), optionHeader, header)
	option = appendInteger(option, optionAction, overwriteOrAdd)
	return appendField(b, mutationSet, option)
}

// appendEntry appends an entry of a map from text to messages, as a field's value.
func appendEntry(b []byte, key string, value []byte) []byte {
	return appendField(appendText(b, entryKey, key), entryValue, value)
}
