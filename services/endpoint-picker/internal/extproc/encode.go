package extproc

import (
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/mem"

	"fairlead.dev/services/endpoint-picker/internal/exchange"
)

// plain are the constant replies that only mean "continue", by kind. They are shared and read-only.
var plain = func() (all [len(outTags)]mem.BufferSlice) {
	for _, kind := range []Kind{RequestHeaders, RequestBody, RequestTrailers, ResponseHeaders, ResponseBody, ResponseTrailers} {
		all[kind] = slices.Clip(encodeChanges(&Reply{Kind: kind}))
	}
	return all
}()

// encode converts a reply to a ProcessingResponse in the wire format. It takes over the reply's body.
func encode(r *Reply) mem.BufferSlice {
	switch {
	case r.Kind == Immediate:
		return encodeRefusal(r.Refusal, r.Form)
	case r.Destination == "" && r.Headers == nil && r.Content == Same:
		return plain[r.Kind]
	}
	return encodeChanges(r)
}

// encodeChanges encodes a reply with changes. The picked endpoint is in a header, which replaces the client's own header of
// that name, and in metadata, for gateways that use it. On trailers it is only in metadata, because headers set there would
// become trailers.
func encodeChanges(r *Reply) mem.BufferSlice {
	w := newWriter(replySize(r))
	if r.Destination != "" {
		w.metadata(r)
	}
	reply := w.begin(outTags[r.Kind])
	if r.Kind != RequestTrailers && r.Kind != ResponseTrailers {
		common := w.begin(replyCommon)
		w.headers(r)
		if r.Destination != "" {
			w.integer(commonClearRoute, 1)
		}
		w.content(r)
		w.end(common)
	}
	w.end(reply)
	return w.message()
}

// replySize returns the room for a reply without its body. A larger one grows.
func replySize(r *Reply) int {
	if r.Destination == "" && r.Headers == nil {
		return 32
	}
	return 384
}

// headers writes the HeaderMutation.
func (w *writer) headers(r *Reply) {
	if r.Destination == "" && (r.Headers == nil || len(r.Headers.Set)+len(r.Headers.Remove) == 0) {
		return
	}
	mutation := w.begin(commonHeaders)
	if r.Destination != "" {
		w.setHeader(headerDestination, r.Destination)
	}
	if r.Headers != nil {
		for _, h := range r.Headers.Set {
			w.setHeader(h.Name, h.Value)
		}
		for _, name := range r.Headers.Remove {
			w.text(mutationRemove, name)
		}
	}
	w.end(mutation)
}

// setHeader writes a replacement of a header in a HeaderMutation.
func (w *writer) setHeader(key, value string) {
	option := w.begin(mutationSet)
	header := w.begin(optionHeader)
	w.text(headerKey, key)
	w.text(headerRaw, value)
	w.end(header)
	w.integer(optionAction, overwriteOrAdd)
	w.end(option)
}

// content writes the BodyMutation.
func (w *writer) content(r *Reply) {
	if r.Content == Same {
		return
	}
	mutation := w.begin(commonBody)
	if r.Content == Replaced {
		w.reference(mutationWhole, r.Body)
	} else {
		streamed := w.begin(mutationStreamed)
		if r.EndOfStream {
			w.integer(bodyEndOfStream, 1)
		}
		if r.Body != nil {
			w.reference(bodyBytes, r.Body)
		}
		w.end(streamed)
	}
	w.end(mutation)
}

// metadata writes the Struct of dynamic metadata.
func (w *writer) metadata(r *Reply) {
	whole := w.begin(outDynamicMetadata)
	namespace := w.beginEntry(lbNamespace)
	inner := w.begin(valueStruct)
	endpoint := w.beginEntry(headerDestination)
	w.text(valueText, r.Destination)
	w.endEntry(endpoint)
	if len(r.Scores) > 0 {
		scores := w.beginEntry(keyScores)
		all := w.begin(valueStruct)
		for _, s := range r.Scores {
			score := w.beginEntry(s.Endpoint.Address())
			w.number(valueNumber, s.Total)
			w.endEntry(score)
		}
		w.end(all)
		w.endEntry(scores)
	}
	w.end(inner)
	w.endEntry(namespace)
	w.end(whole)
}

func encodeRefusal(r *exchange.Refusal, f exchange.Form) mem.BufferSlice {
	body, contentType := r.Body(f)
	w := newWriter(len(body) + 384)
	reply := w.begin(outImmediateResponse)
	code := w.begin(immediateStatus)
	w.integer(statusCode, uint64(r.Code))
	w.end(code)
	headers := w.begin(immediateHeaders)
	w.setHeader(headerContentType, contentType)
	if r.Reason != "" {
		w.setHeader(headerDroppedReason, r.Reason)
	}
	if r.RetryAfter > 0 {
		w.setHeader(headerRetryAfter, strconv.Itoa(int(r.RetryAfter/time.Second)))
	}
	w.end(headers)
	w.bytes(immediateBody, body)
	w.text(immediateDetails, "endpoint_picker_refused")
	w.end(reply)
	return w.message()
}
