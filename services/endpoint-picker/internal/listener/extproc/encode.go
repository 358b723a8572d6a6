package extproc

import (
	"slices"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// continueReplies are the constant replies that only mean "continue", by kind. They are shared and read-only.
var continueReplies = func() (all [len(outTags)]mem.BufferSlice) {
	for _, kind := range []Kind{RequestHeaders, RequestBody, RequestTrailers, ResponseHeaders, ResponseBody, ResponseTrailers} {
		all[kind] = slices.Clip(encodeChanges(&Reply{Kind: kind}))
	}
	return all
}()

// encodeReply converts a reply to a ProcessingResponse in the wire format. It takes over the reply's body.
func encodeReply(r *Reply) mem.BufferSlice {
	switch {
	case r.Kind == Immediate:
		return encodeRefusal(r.Refusal, r.ErrorFormat)
	case r.Destination == "" && r.Headers.areUnchanged() && r.Content == Same:
		return continueReplies[r.Kind]
	}
	return encodeChanges(r)
}

// encodeChanges encodes a reply with changes. The picked endpoint is in a header, which replaces the client's own header of
// that name, and in metadata, for gateways that use it. On trailers it is only in metadata, because headers set there would
// become trailers.
func encodeChanges(r *Reply) mem.BufferSlice {
	w := newMessageWriter(replySize(r))
	if r.Destination != "" {
		w.writeMetadata(r)
	}
	reply := w.beginField(outTags[r.Kind])
	if r.Kind != RequestTrailers && r.Kind != ResponseTrailers {
		common := w.beginField(replyCommon)
		w.writeHeaders(r)
		if r.Destination != "" {
			w.writeVarint(commonClearRoute, 1)
		}
		w.writeBody(r)
		w.endField(common)
	}
	w.endField(reply)
	return w.toBuffers()
}

// replySize returns the room for a reply without its body. A larger one grows.
func replySize(r *Reply) int {
	if r.Destination == "" && r.Headers.areUnchanged() {
		return 32
	}
	return 384
}

// writeHeaders writes the HeaderMutation.
func (w *messageWriter) writeHeaders(r *Reply) {
	if r.Destination == "" && r.Headers.areUnchanged() {
		return
	}
	mutation := w.beginField(commonHeaders)
	if r.Destination != "" {
		w.setHeader(request.HeaderDestination, r.Destination)
	}
	for _, h := range r.Headers.Set {
		w.setHeader(h.Name, h.Value)
	}
	for _, name := range r.Headers.Remove {
		w.writeText(mutationRemove, name)
	}
	w.endField(mutation)
}

// setHeader writes a replacement of a header in a HeaderMutation.
func (w *messageWriter) setHeader(key, value string) {
	option := w.beginField(mutationSet)
	header := w.beginField(optionHeader)
	w.writeText(headerKey, key)
	w.writeText(headerRaw, value)
	w.endField(header)
	w.writeVarint(optionAction, overwriteOrAdd)
	w.endField(option)
}

// writeBody writes the BodyMutation.
func (w *messageWriter) writeBody(r *Reply) {
	if r.Content == Same {
		return
	}
	mutation := w.beginField(commonBody)
	if r.Content == Replaced {
		w.writeBuffer(mutationWhole, r.Body)
	} else {
		streamed := w.beginField(mutationStreamed)
		if r.EndOfStream {
			w.writeVarint(bodyEndOfStream, 1)
		}
		if r.Body != nil {
			w.writeBuffer(bodyBytes, r.Body)
		}
		w.endField(streamed)
	}
	w.endField(mutation)
}

// writeMetadata writes the Struct of dynamic metadata.
func (w *messageWriter) writeMetadata(r *Reply) {
	metadata := w.beginField(outDynamicMetadata)
	namespace := w.beginEntry(lbNamespace)
	inner := w.beginField(valueStruct)
	endpoint := w.beginEntry(request.HeaderDestination)
	w.writeText(valueText, r.Destination)
	w.endEntry(endpoint)
	if len(r.Scores) > 0 {
		scores := w.beginEntry(keyScores)
		all := w.beginField(valueStruct)
		for _, s := range r.Scores {
			score := w.beginEntry(s.Endpoint.Address())
			w.writeDouble(valueNumber, s.Total)
			w.endEntry(score)
		}
		w.endField(all)
		w.endEntry(scores)
	}
	w.endField(inner)
	w.endEntry(namespace)
	w.endField(metadata)
}

func encodeRefusal(r *request.Refusal, f request.ErrorFormat) mem.BufferSlice {
	set, body := r.EncodeResponse(f)
	w := newMessageWriter(len(body) + 384)
	reply := w.beginField(outImmediateResponse)
	code := w.beginField(immediateStatus)
	w.writeVarint(statusCode, uint64(r.Code))
	w.endField(code)
	headers := w.beginField(immediateHeaders)
	for _, h := range set {
		w.setHeader(h.Name, h.Value)
	}
	w.endField(headers)
	w.writeBytes(immediateBody, body)
	w.writeText(immediateDetails, "endpoint_picker_refused")
	w.endField(reply)
	return w.toBuffers()
}
