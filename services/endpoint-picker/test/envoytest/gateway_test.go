package envoytest

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"
)

type reply = *extprocv3.ProcessingResponse

const picked = "10.0.0.1:8000"

func setTo(pairs ...string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{}
	for i := 0; i < len(pairs); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
			Header: &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return m
}

func metadata(address string) *structpb.Struct {
	lb := &structpb.Struct{Fields: map[string]*structpb.Value{HeaderDestination: structpb.NewStringValue(address)}}
	return &structpb.Struct{Fields: map[string]*structpb.Value{NamespaceLB: structpb.NewStructValue(lb)}}
}

// pick is a reply to headers; change makes it another.
func pick(change ...func(common *extprocv3.CommonResponse, r reply)) reply {
	common := &extprocv3.CommonResponse{HeaderMutation: setTo(HeaderDestination, picked), ClearRouteCache: true}
	r := &extprocv3.ProcessingResponse{
		Response:        &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{Response: common}},
		DynamicMetadata: metadata(picked),
	}
	for _, c := range change {
		c(common, r)
	}
	return r
}

func chunk(body string, end bool) *extprocv3.BodyResponse {
	return mutated(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: []byte(body), EndOfStream: end},
	}})
}

func mutated(m *extprocv3.BodyMutation) *extprocv3.BodyResponse {
	return &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: m}}
}

func body(b *extprocv3.BodyResponse) reply {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
}

func answer(b *extprocv3.BodyResponse) reply {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

func answerHeaders(m *extprocv3.HeaderMutation) reply {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: &extprocv3.CommonResponse{HeaderMutation: m}},
	}}
}

var (
	trailers  = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
	immediate = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{}}}
	goOn      = pick(func(c *extprocv3.CommonResponse, r reply) {
		c.HeaderMutation, c.ClearRouteCache, r.DynamicMetadata = nil, false, nil
	})
)

func header(change func(m *extprocv3.HeaderMutation)) reply {
	return pick(func(c *extprocv3.CommonResponse, _ reply) { change(c.HeaderMutation) })
}

// sentTo shows an exchange of which all but the end of the response was sent: the request is "abc".
func sentTo(g *Gateway) {
	g.RecordSent(RequestHeaders(&extprocv3.HttpHeaders{Headers: Headers(":path", "/", HeaderDestination, "1.1.1.1:1", "x-private", "1",
		"x-private", "2")}))
	g.RecordSent(RequestBody(&extprocv3.HttpBody{Body: []byte("ab")}))
	g.RecordSent(RequestBody(&extprocv3.HttpBody{Body: []byte("c"), EndOfStream: true}))
	g.RecordSent(RequestBody(&extprocv3.HttpBody{Body: []byte("c"), EndOfStream: true})) // envoyproxy/envoy#46237
	g.RecordSent(ResponseHeaders(&extprocv3.HttpHeaders{Headers: Headers(":status", "200", "content-length", "3")}))
	g.RecordSent(ResponseBody(&extprocv3.HttpBody{Body: []byte("xy")}))
}

func TestRepliesThatEnvoyTakes(t *testing.T) {
	t.Parallel()
	g := New(Rules{Remove: []string{"x-private"}, Reply: []string{"x-told"}})
	sentTo(g)
	require.Error(t, g.CheckFinished())
	for _, r := range []reply{
		header(func(m *extprocv3.HeaderMutation) {
			m.RemoveHeaders = []string{"x-private"}
			m.SetHeaders = append(m.SetHeaders, setTo("content-length", "3").GetSetHeaders()...)
		}),
		body(chunk("a", false)), body(chunk("bc", true)), answerHeaders(setTo("x-told", "1")), answer(chunk("xy", false)),
	} {
		require.NoError(t, g.CheckReply(r))
	}
	require.NoError(t, g.CheckFinished())
	assert.Equal(t, picked, g.PickedEndpoint())
	assert.Equal(t, "abc", g.UpstreamBody())
	assert.Equal(t, Fields{":path": {"/"}, HeaderDestination: {picked}, "content-length": {"3"}}, g.RequestHeaders())
	assert.Equal(t, Fields{":status": {"200"}, "content-length": {"3"}, "x-told": {"1"}}, g.ResponseHeaders())
	g.RecordSent(ResponseTrailers())
	require.EqualError(t, g.CheckFinished(), "response: trailers were not answered")
}

func TestRepliesThatAreRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxChunk+1)
	tests := []struct {
		name  string
		rules Rules
		give  []reply // the last is refused
		want  string
	}{
		{name: "body first", give: []reply{body(chunk("a", false))}, want: "body reply before the header reply"},
		{name: "two header replies", give: []reply{goOn, pick()}, want: "second header reply"},
		{name: "two picks", give: []reply{pick(), body(&extprocv3.BodyResponse{Response: pick().GetRequestHeaders().GetResponse()})}, want: "body reply that is not streamed"},
		{name: "whole body", give: []reply{pick(), body(mutated(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: []byte("abc")}}))}, want: "body reply that is not streamed"},
		{name: "long chunk", give: []reply{pick(), body(chunk(long, false))}, want: "chunk of 62001 bytes"},
		{name: "other bytes", give: []reply{pick(), body(chunk("ab", false)), body(chunk("d", true))}, want: `body differs from byte 2 on: "d" instead of "c"`},
		{name: "bytes too many", give: []reply{pick(), body(chunk("abcd", true))}, want: `body differs from byte 0 on: "abcd" instead of "abc"`},
		{name: "cut short", give: []reply{pick(), body(chunk("ab", true))}, want: "body cut short"},
		{name: "end twice", give: []reply{pick(), body(chunk("abc", true)), body(chunk("", true))}, want: "body reply after the end"},
		{name: "an end that was not sent", give: []reply{answerHeaders(nil), answer(chunk("xy", true))}, want: "end of stream that was not sent"},
		{name: "trailers that were not sent", give: []reply{trailers}, want: "trailer reply to nothing"},
		{name: "refused after the pick", give: []reply{pick(), immediate}, want: "immediate response after the request was answered"},
		{name: "more after a refusal", give: []reply{immediate, pick()}, want: "reply after an immediate response"},
		{name: "nothing", give: []reply{{}}, want: "reply of kind <nil>"},
		{name: "no metadata", give: []reply{pick(func(_ *extprocv3.CommonResponse, r reply) { r.DynamicMetadata = nil })}, want: "pick without its metadata"},
		{name: "no header", give: []reply{pick(func(c *extprocv3.CommonResponse, _ reply) { c.HeaderMutation = nil })}, want: `header "" and metadata "10.0.0.1:8000" differ`},
		{name: "another header", give: []reply{pick(func(_ *extprocv3.CommonResponse, r reply) { r.DynamicMetadata = metadata("10.0.0.2:8000") })}, want: `header "10.0.0.1:8000" and metadata "10.0.0.2:8000" differ`},
		{name: "route cache kept", give: []reply{pick(func(c *extprocv3.CommonResponse, _ reply) { c.ClearRouteCache = false })}, want: "the pick, and nothing else, must clear the route cache"},
		{name: "a list", give: []reply{pick(func(_ *extprocv3.CommonResponse, r reply) { r.DynamicMetadata = metadata("a,b") })}, want: `picked "a,b"`},
		{name: "outside", rules: Rules{Allowed: func(string) bool { return false }}, give: []reply{pick()}, want: `picked "10.0.0.1:8000", which may not be`},
		{name: "other metadata", give: []reply{pick(func(_ *extprocv3.CommonResponse, r reply) { r.DynamicMetadata.Fields["x"] = structpb.NewNullValue() })}, want: "metadata "},
		{name: "another header is set", give: []reply{header(func(m *extprocv3.HeaderMutation) {
			m.SetHeaders = append(m.SetHeaders, setTo("x", "y").GetSetHeaders()...)
		})}, want: `header "x" is set`},
		{name: "set twice", give: []reply{header(func(m *extprocv3.HeaderMutation) { m.SetHeaders = append(m.SetHeaders, m.GetSetHeaders()...) })}, want: `header "x-gateway-destination-endpoint" is set`},
		{name: "two values", give: []reply{header(func(m *extprocv3.HeaderMutation) { m.GetSetHeaders()[0].Header.Value = picked })}, want: `header "x-gateway-destination-endpoint" has two values`},
		{name: "appended", give: []reply{header(func(m *extprocv3.HeaderMutation) {
			m.GetSetHeaders()[0].AppendAction = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
		})}, want: `header "x-gateway-destination-endpoint" does not replace the client's`},
		{name: "another length", give: []reply{header(func(m *extprocv3.HeaderMutation) {
			m.SetHeaders = append(m.SetHeaders, setTo("content-length", "4").GetSetHeaders()...)
		})}, want: "content length 4 instead of 3"},
		{name: "removed", give: []reply{header(func(m *extprocv3.HeaderMutation) { m.RemoveHeaders = []string{"accept"} })}, want: `header "accept" is removed`},
		{name: "removed twice", rules: Rules{Remove: []string{"x-private"}}, give: []reply{header(func(m *extprocv3.HeaderMutation) { m.RemoveHeaders = []string{"x-private", "x-private"} })}, want: `header "x-private" is removed`},
		{name: "the pick is removed", give: []reply{header(func(m *extprocv3.HeaderMutation) { m.RemoveHeaders = []string{HeaderDestination} })}, want: `header "x-gateway-destination-endpoint" is removed`},
		{name: "a header of the response", give: []reply{answerHeaders(setTo("x", "y"))}, want: `header "x" is set`},
		{name: "the response's length", give: []reply{answerHeaders(&extprocv3.HeaderMutation{RemoveHeaders: []string{"content-length"}})}, want: `header "content-length" is removed`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := New(tt.rules)
			sentTo(g)
			last := len(tt.give) - 1
			for _, r := range tt.give[:last] {
				require.NoError(t, g.CheckReply(r))
			}
			require.ErrorContains(t, g.CheckReply(tt.give[last]), tt.want)
		})
	}
}

// In modes in which the gateway has a piece and waits, it goes on as it is, or another in its place.
func TestRepliesToAGatewayThatWaits(t *testing.T) {
	t.Parallel()
	replaced := body(mutated(&extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: []byte("abc")}}))
	same := body(&extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{}})
	tests := []struct {
		name  string
		rules Rules
		give  []reply
		want  string // of the last, empty if it is taken
	}{
		{name: "as it is", give: []reply{goOn, same}},
		{name: "replaced", rules: Rules{Upstream: []byte("abc")}, give: []reply{goOn, replaced}},
		{name: "before the headers", give: []reply{same}, want: "body reply before the header reply"},
		{name: "streamed", give: []reply{goOn, body(chunk("ab", true))}, want: "body mutation where none is wanted"},
		{name: "replaced, and it should not be", give: []reply{goOn, replaced}, want: "body mutation where none is wanted"},
		{name: "as it is, and it should not be", rules: Rules{Upstream: []byte("abc")}, give: []reply{goOn, same}, want: "where the piece is to be replaced"},
		{name: "twice", give: []reply{goOn, same, same}, want: "body reply to nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := New(tt.rules)
			g.SetModes(filterv3.ProcessingMode_BUFFERED, filterv3.ProcessingMode_BUFFERED)
			g.RecordSent(RequestHeaders(&extprocv3.HttpHeaders{Headers: Headers(":path", "/")}))
			g.RecordSent(RequestBody(&extprocv3.HttpBody{Body: []byte("ab"), EndOfStream: true}))
			last := len(tt.give) - 1
			for _, r := range tt.give[:last] {
				require.NoError(t, g.CheckReply(r))
			}
			err := g.CheckReply(tt.give[last])
			if tt.want == "" {
				require.NoError(t, err)
				require.NoError(t, g.CheckFinished())
				return
			}
			require.ErrorContains(t, err, tt.want)
		})
	}
}
