package extproc

import (
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// decoder turns a gateway's messages into ours. Bodies are taken over, not copied.
type decoder struct {
	bodyMode     BodyMode // of gateways that do not tell theirs
	ignoreSubset bool
}

func (d decoder) decode(in *extprocv3.ProcessingRequest, m *Message) {
	*m = Message{}
	switch r := in.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		m.Kind, m.EndOfStream = RequestHeaders, r.RequestHeaders.GetEndOfStream()
		m.Modes = d.modes(in.GetProtocolConfig())
		if !d.ignoreSubset {
			m.Subset = subset(in.GetMetadataContext())
		}
	case *extprocv3.ProcessingRequest_RequestBody:
		m.Kind, m.EndOfStream, m.Body = RequestBody, r.RequestBody.GetEndOfStream(), r.RequestBody.GetBody()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		m.Kind = RequestTrailers
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		m.Kind, m.EndOfStream = ResponseHeaders, r.ResponseHeaders.GetEndOfStream()
		m.Status, _ = strconv.Atoi(headerValue(r.ResponseHeaders.GetHeaders(), headerStatus)) // none is 0
		m.Served = metadata(in.GetMetadataContext(), lbNamespace, keyServed).GetStringValue()
	case *extprocv3.ProcessingRequest_ResponseBody:
		m.Kind, m.EndOfStream, m.Body = ResponseBody, r.ResponseBody.GetEndOfStream(), r.ResponseBody.GetBody()
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		m.Kind = ResponseTrailers
	}
}

// modes are those of the stream's first message, else those that the gateway is known to have.
func (d decoder) modes(c *extprocv3.ProtocolConfiguration) Modes {
	if c == nil {
		return Modes{Request: d.bodyMode, Response: d.bodyMode}
	}
	return Modes{Request: bodyMode(c.GetRequestBodyMode()), Response: bodyMode(c.GetResponseBodyMode())}
}

func bodyMode(m filterv3.ProcessingMode_BodySendMode) BodyMode {
	switch m {
	case filterv3.ProcessingMode_NONE:
		return None
	case filterv3.ProcessingMode_STREAMED:
		return Streamed
	case filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED_PARTIAL:
		return Buffered
	case filterv3.ProcessingMode_FULL_DUPLEX_STREAMED, filterv3.ProcessingMode_GRPC:
	}
	return FullDuplex
}

// headerValue returns a header's value. Envoy sends raw values and keys in lower case; not every gateway does.
func headerValue(headers *corev3.HeaderMap, key string) string {
	for _, h := range headers.GetHeaders() {
		if !strings.EqualFold(h.GetKey(), key) {
			continue
		}
		if raw := h.GetRawValue(); len(raw) > 0 {
			return string(raw)
		}
		return h.GetValue()
	}
	return ""
}

// subset returns the gateway's hint, nil if there is none. One that is there allows nothing that it does not name.
func subset(m *corev3.Metadata) *scheduling.Subset {
	v := metadata(m, subsetNamespace, keySubset)
	switch {
	case v == nil:
		return nil
	case v.GetListValue() == nil:
		return scheduling.ParseSubset([]string{v.GetStringValue()})
	}
	values := v.GetListValue().GetValues()
	entries := make([]string, 0, len(values))
	for _, e := range values {
		entries = append(entries, e.GetStringValue())
	}
	return scheduling.ParseSubset(entries)
}

func metadata(m *corev3.Metadata, namespace, key string) *structpb.Value {
	return m.GetFilterMetadata()[namespace].GetFields()[key]
}
