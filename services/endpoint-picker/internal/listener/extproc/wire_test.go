package extproc

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/envoytest"
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
		m.Request = referenceRequest(r.RequestHeaders.GetHeaders())
		m.Request.Subset = referenceSubset(in.GetMetadataContext())
	case *extprocv3.ProcessingRequest_RequestBody:
		m.Kind, m.EndOfStream, m.Body = RequestBody, r.RequestBody.GetEndOfStream(), buffer(string(r.RequestBody.GetBody()))
	case *extprocv3.ProcessingRequest_RequestTrailers:
		m.Kind = RequestTrailers
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		m.Kind, m.EndOfStream = ResponseHeaders, r.ResponseHeaders.GetEndOfStream()
		m.Response = referenceResponse(r.ResponseHeaders.GetHeaders())
		m.Response.Served = in.GetMetadataContext().GetFilterMetadata()[lbNamespace].GetFields()[keyServed].GetStringValue()
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
		return Chunked
	case filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED_PARTIAL:
		return Buffered
	default:
		return FullDuplex
	}
}

// listOf returns the elements of a list in a header.
func listOf(value string) (all []string) {
	for _, element := range strings.Split(value, ",") {
		all = append(all, strings.ToLower(strings.TrimSpace(element)))
	}
	return all
}

// referenceRequest reads the headers of a request the slow way.
func referenceRequest(headers *corev3.HeaderMap) Request {
	r := Request{}
	for _, h := range headers.GetHeaders() {
		value := headerValue(h)
		key := strings.ToLower(h.GetKey())
		switch {
		case key == headerPath && r.Path == "":
			r.Path = value
		case key == request.HeaderRequestID && r.ID == "":
			r.ID = value
		case key == request.HeaderTrace && r.TraceParent == "":
			r.TraceParent = value
		case key == request.HeaderDestination:
			r.HasDestination = true
		case key == headerAccept && !request.AcceptsJSON(value), key == headerContentType && strings.HasPrefix(value, "application/grpc"):
			r.RefusesJSON = true
		case key == headerTransfer:
			r.Tunnel |= Framed
		case key == headerContentLength && value != "0":
			r.Tunnel |= Framed
			if n, err := strconv.Atoi(value); err == nil && !strings.ContainsAny(value, "+-") {
				r.Length = n
			} else {
				r.Length = 0
			}
		case key == headerProtocol:
			r.Tunnel |= Extended
		case key == headerConnection && slices.Contains(listOf(value), "upgrade"):
			r.Tunnel |= Upgraded
		case key == headerUpgrade && slices.ContainsFunc(listOf(value), func(p string) bool { return p != "" && p != "h2c" && !strings.HasPrefix(p, "tls/") }):
			r.Tunnel |= Requested
		}
		for _, c := range api.Controls() {
			if c.Name == key {
				r.Headers = append(r.Headers, api.Header{Name: key, Value: value})
				if c.Private && !slices.Contains(r.Private, key) {
					r.Private = append(r.Private, key)
				}
			}
		}
	}
	return r
}

func referenceResponse(headers *corev3.HeaderMap) request.ResponseHeaders {
	r := request.ResponseHeaders{}
	for _, h := range headers.GetHeaders() {
		value := headerValue(h)
		switch strings.ToLower(h.GetKey()) {
		case headerStatus:
			if r.Status == 0 {
				r.Status, _ = strconv.Atoi(value)
			}
		case headerContentType:
			r.SetContentType(value)
		case headerContentEncoding:
			r.Encoded = value != encodingNone
		}
	}
	return r
}

func headerValue(h *corev3.HeaderValue) string {
	if len(h.GetRawValue()) > 0 {
		return string(h.GetRawValue())
	}
	return h.GetValue()
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
	first := toEnvoy(&Message{Kind: RequestHeaders, Modes: Modes{Buffered, Chunked}})
	first.MetadataContext = envoytest.Metadata(subsetNamespace, keySubset, list)
	first.Attributes = map[string]*structpb.Struct{"envoy.filters.http.ext_proc": {Fields: map[string]*structpb.Value{"a": list}}}
	style := toEnvoy(&Message{Kind: RequestHeaders})
	style.ProtocolConfig = nil
	style.GetRequestHeaders().Headers.Headers = append(style.GetRequestHeaders().GetHeaders().GetHeaders(),
		&corev3.HeaderValue{Key: "X-Request-ID", Value: "id"}, &corev3.HeaderValue{Key: "TraceParent", Value: "00-1-2-01"},
		&corev3.HeaderValue{Key: "X-LLM-D-Inference-Objective", Value: "batch"}, &corev3.HeaderValue{Key: "x-prefiller-host-port", Value: "169.254.169.254:80"},
		&corev3.HeaderValue{Key: "X-Prefiller-Host-Port", Value: "169.254.169.254:81"})
	compressed := toEnvoy(&Message{Kind: ResponseHeaders})
	compressed.GetResponseHeaders().Headers = envoytest.Headers(":status", "200", "content-type", "text/event-stream; charset=utf-8", "content-encoding", "gzip")
	style.MetadataContext = envoytest.Metadata(subsetNamespace, keySubset, structpb.NewStringValue("[2001:db8::1]:8000"))
	all := []*extprocv3.ProcessingRequest{first, style, compressed, {}}
	for _, pair := range [][]string{{"Accept", "text/plain"}, {"accept", "application/json"}, {"content-type", "application/grpc+proto"}, {"content-type", "application/json"},
		{"Connection", "keep-alive, Upgrade", "upgrade", "websocket"}, {"upgrade", "h2c, TLS/1.2,", ":protocol", "websocket"}, {"content-length", "0"},
		{"content-length", "1"}, {"transfer-encoding", "chunked"}, {"upgrade", "h2c, websocket"}} {
		in := toEnvoy(&Message{Kind: RequestHeaders})
		in.GetRequestHeaders().Headers = envoytest.Headers(pair...)
		all = append(all, in)
	}
	for kind := RequestHeaders; kind < Immediate; kind++ {
		all = append(all, toEnvoy(&Message{Kind: kind, EndOfStream: kind%2 == 0, Body: buffer("{}"),
			Response: request.ResponseHeaders{Served: "10.0.0.1:8000"}}))
	}
	return all
}

var testDecoder = decoder{bodyMode: Buffered, wanted: &request.WantedHeaders{}}

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
		broken := testDecoder.decodeMessage(mem.SliceBuffer(raw), &m)
		in := &extprocv3.ProcessingRequest{}
		if proto.Unmarshal(raw, in) != nil {
			return
		}
		require.True(t, broken == nil || in.GetRequest() != nil)
		raw, err := proto.Marshal(in) // without what the wire allows and nobody sends, such as two bodies of one message
		require.NoError(t, err)
		require.NoError(t, testDecoder.decodeMessage(mem.SliceBuffer(raw), &m))
		m.Body = buffer(string(content(m.Body)))
		require.Equal(t, referenceDecode(testDecoder, in), m)
	})
}

// FuzzEncode checks that gateways read what the generated code would have written.
func FuzzEncode(f *testing.F) {
	f.Add(uint8(RequestHeaders), "", uint8(0), "10.0.0.1:8000", "")
	f.Add(uint8(RequestHeaders), "", uint8(4), "10.0.0.1:8000", "x-header")
	f.Add(uint8(RequestBody), "abc", uint8(3), "", "")
	f.Add(uint8(RequestBody), "abc", uint8(8), "10.0.0.1:8000", "x")
	f.Add(uint8(RequestBody), "", uint8(0), "[2001:db8::1]:8000", "")
	f.Add(uint8(RequestTrailers), "", uint8(0), "10.0.0.1:8000", "")
	f.Add(uint8(ResponseHeaders), "", uint8(4), "", "10.0.0.1:8000")
	f.Add(uint8(ResponseBody), strings.Repeat("x", maxChunk), uint8(1), "", "")
	f.Add(uint8(ResponseBody), "", uint8(8), "", "")
	f.Add(uint8(Immediate), "text", uint8(2), "", "reason")
	for kind := RequestHeaders; kind < Immediate; kind++ {
		f.Add(uint8(kind), "", uint8(0), "", "")
	}
	f.Fuzz(func(t *testing.T, kind uint8, text string, flags uint8, destination, name string) {
		r := Reply{Kind: Kind(kind%7) + 1}
		body := r.Kind == RequestBody || r.Kind == ResponseBody
		if r.Kind <= RequestTrailers {
			r.Destination = destination
			if destination != "" && flags&16 != 0 {
				r.Scores = []request.Score{{Endpoint: newOne().endpoint, Total: float64(len(text)) / 3}}
			}
		}
		if flags&4 != 0 && r.Kind != RequestTrailers && r.Kind != ResponseTrailers {
			r.Headers = Headers{Set: api.Headers{{Name: name, Value: text}}, Remove: []string{name}}
		}
		switch {
		case r.Kind == Immediate:
			r.Refusal = &request.Refusal{Code: 100 + len(text), Reason: name, Text: text, RetryAfter: time.Duration(flags) * time.Second}
		case flags&1 != 0 && body:
			r = Reply{Kind: r.Kind, Content: Streamed, Body: buffer(text), EndOfStream: flags&2 != 0}
		case flags&8 != 0 && body:
			r.Content, r.Body = Replaced, buffer(text)
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
			require.ErrorIs(t, testDecoder.decodeMessage(mem.SliceBuffer(tt.give), &m), errMalformed)
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
	require.NoError(t, testDecoder.decodeMessage(in, &m))
	in.Free()
	assert.Equal(t, 1, pool.lent(), "as long as the body is")
	assert.Equal(t, strings.Repeat("x", 2000), string(content(m.Body)))
	m.detachBody().Free()
	assert.Zero(t, pool.lent())
}
