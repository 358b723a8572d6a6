package extproc

import (
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// referenceDecode reads a message by the generated code.
func referenceDecode(d decoder, in *extprocv3.ProcessingRequest) Message {
	m := Message{Modes: Modes{Request: d.bodyMode, Response: d.bodyMode}}
	if c := in.GetProtocolConfig(); c != nil {
		m.Modes = Modes{Request: referenceMode(c.GetRequestBodyMode()), Response: referenceMode(c.GetResponseBodyMode())}
	}
	switch r := in.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		m.Kind, m.EndOfStream = RequestHeaders, r.RequestHeaders.GetEndOfStream()
		m.RequestID = headerValue(r.RequestHeaders.GetHeaders(), headerRequestID)
		m.Path = headerValue(r.RequestHeaders.GetHeaders(), headerPath)
		m.Subset = referenceSubset(in.GetMetadataContext())
	case *extprocv3.ProcessingRequest_RequestBody:
		m.Kind, m.EndOfStream, m.Body = RequestBody, r.RequestBody.GetEndOfStream(), buffer(string(r.RequestBody.GetBody()))
	case *extprocv3.ProcessingRequest_RequestTrailers:
		m.Kind = RequestTrailers
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		m.Kind, m.EndOfStream = ResponseHeaders, r.ResponseHeaders.GetEndOfStream()
		m.Status, _ = strconv.Atoi(headerValue(r.ResponseHeaders.GetHeaders(), headerStatus)) // none is 0
		m.Served = in.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()[keyServed].GetStringValue()
	case *extprocv3.ProcessingRequest_ResponseBody:
		m.Kind, m.EndOfStream, m.Body = ResponseBody, r.ResponseBody.GetEndOfStream(), buffer(string(r.ResponseBody.GetBody()))
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		m.Kind = ResponseTrailers
	}
	return m
}

func referenceMode(m filterv3.ProcessingMode_BodySendMode) BodyMode {
	switch m {
	case filterv3.ProcessingMode_NONE:
		return None
	case filterv3.ProcessingMode_STREAMED:
		return Streamed
	case filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED_PARTIAL:
		return Buffered
	default:
		return FullDuplex
	}
}

// headerValue returns the first header of a key that has a value that counts.
func headerValue(headers *corev3.HeaderMap, key string) string {
	for _, h := range headers.GetHeaders() {
		value := h.GetValue()
		if len(h.GetRawValue()) > 0 {
			value = string(h.GetRawValue())
		}
		if _, err := strconv.Atoi(value); strings.EqualFold(h.GetKey(), key) && value != "" && (key != headerStatus || err == nil && value != "0") {
			return value
		}
	}
	return ""
}

func referenceSubset(m *corev3.Metadata) *scheduling.Subset {
	v := m.GetFilterMetadata()[subsetNamespace].GetFields()[keySubset]
	if _, there := m.GetFilterMetadata()[subsetNamespace].GetFields()[keySubset]; !there {
		return nil
	}
	var entries []string
	if s, ok := v.GetKind().(*structpb.Value_StringValue); ok {
		entries = append(entries, s.StringValue)
	}
	for _, e := range v.GetListValue().GetValues() {
		entries = append(entries, e.GetStringValue())
	}
	return scheduling.ParseSubset(entries)
}

// seeds are messages of every kind.
func seeds() []*extprocv3.ProcessingRequest {
	list := structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{structpb.NewStringValue("10.0.0.1:8000"), structpb.NewNullValue()}})
	first := toEnvoy(&Message{Kind: RequestHeaders, Modes: Modes{Buffered, Streamed}})
	first.MetadataContext = metadataOf(subsetNamespace, keySubset, list)
	first.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{"a": list}}}
	style := toEnvoy(&Message{Kind: RequestHeaders})
	style.ProtocolConfig = nil
	style.GetRequestHeaders().Headers.Headers = append(style.GetRequestHeaders().GetHeaders().GetHeaders(), &corev3.HeaderValue{Key: "X-Request-ID", Value: "id"})
	style.MetadataContext = metadataOf(subsetNamespace, keySubset, structpb.NewStringValue("[2001:db8::1]:8000"))
	all := []*extprocv3.ProcessingRequest{first, style, {}}
	for kind := RequestHeaders; kind < Immediate; kind++ {
		all = append(all, toEnvoy(&Message{Kind: kind, EndOfStream: kind%2 == 0, Body: buffer("{}"), Served: "10.0.0.1:8000"}))
	}
	return all
}

// FuzzDecode checks that we read what the generated code reads, and nothing breaks where that refuses.
func FuzzDecode(f *testing.F) {
	for _, in := range seeds() {
		raw, err := proto.Marshal(in)
		require.NoError(f, err)
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m Message
		broken := decoder{}.decode(mem.SliceBuffer(raw), &m)
		in := &extprocv3.ProcessingRequest{}
		if proto.Unmarshal(raw, in) != nil {
			return
		}
		require.True(t, broken == nil || in.GetRequest() != nil)
		raw, err := proto.Marshal(in) // without what the wire allows and nobody sends, such as two bodies of one message
		require.NoError(t, err)
		require.NoError(t, decoder{bodyMode: Buffered}.decode(mem.SliceBuffer(raw), &m))
		m.Body = buffer(string(content(m.Body)))
		require.Equal(t, referenceDecode(decoder{bodyMode: Buffered}, in), m)
	})
}

// FuzzEncode checks that gateways read what the generated code would have written.
func FuzzEncode(f *testing.F) {
	f.Add(uint8(RequestHeaders), "", false, false, "10.0.0.1:8000", "")
	f.Add(uint8(RequestBody), "abc", true, true, "", "")
	f.Add(uint8(RequestBody), "", false, false, "[2001:db8::1]:8000", "")
	f.Add(uint8(RequestTrailers), "", false, false, "10.0.0.1:8000", "")
	f.Add(uint8(ResponseHeaders), "", false, false, "", "10.0.0.1:8000")
	f.Add(uint8(ResponseBody), strings.Repeat("x", maxChunk), true, false, "", "")
	f.Add(uint8(Immediate), "text", false, true, "", "reason")
	for kind := RequestHeaders; kind < Immediate; kind++ {
		f.Add(uint8(kind), "", false, false, "", "")
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string, streamed, end bool, destination, reason string) {
		r := Reply{Kind: Kind(kind%7) + 1}
		switch {
		case r.Kind == Immediate:
			r.Refusal = &Refusal{Code: 100 + len(text), Reason: reason, Text: text}
		case streamed && (r.Kind == RequestBody || r.Kind == ResponseBody):
			r.Streamed, r.Body, r.EndOfStream = true, buffer(text), end
		case r.Kind <= RequestTrailers:
			r.Destination = destination
		case r.Kind == ResponseHeaders:
			r.Picked = reason
		}
		want, err := proto.Marshal(reference(&r))
		if err != nil {
			return // text that is not UTF-8
		}
		wanted := &extprocv3.ProcessingResponse{}
		require.NoError(t, proto.Unmarshal(want, wanted))
		got := encoded(&r)
		require.True(t, proto.Equal(wanted, got), "want %v, got %v", wanted, got)
	})
}

func TestDecode_RefusesWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	body := func(b string) string { return "\x22" + string(rune(len(b))) + b }
	tests := []struct{ name, give string }{
		{name: "cut off", give: "\x22\x05\x0a"},
		{name: "a tag without an end", give: "\xff\xff"},
		{name: "headers cut off", give: "\x12\x02\x0a\x05"},
		{name: "a header cut off", give: "\x12\x04\x0a\x02\x0a\x01"},
		{name: "a body cut off", give: body("\x0a\x05")},
		{name: "two bodies", give: body("\x0a\x01a") + body("\x0a\x01b")},
		{name: "headers and a body", give: "\x12\x00" + body("\x0a\x01b")},
		{name: "the end of a group", give: "\x24"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var m Message
			require.ErrorIs(t, decoder{}.decode(mem.SliceBuffer(tt.give), &m), errMalformed)
			assert.Nil(t, m.Body)
		})
	}
}

func TestDecode_RefersToTheBody(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(toEnvoy(&Message{Kind: ResponseBody, Body: buffer(strings.Repeat("x", 2000))}))
	require.NoError(t, err)
	pool := &leakPool{}
	in := pool.copy(raw)
	var m Message
	require.NoError(t, decoder{}.decode(in, &m))
	in.Free()
	assert.Equal(t, 1, pool.lent(), "as long as the body is")
	assert.Equal(t, strings.Repeat("x", 2000), string(content(m.Body)))
	m.take().Free()
	assert.Zero(t, pool.lent())
}
