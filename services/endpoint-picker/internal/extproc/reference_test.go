package extproc

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// plain are the replies that say nothing but "go on", by kind. They are sent as they are and never changed.
var plain = [...]*extprocv3.ProcessingResponse{
	RequestHeaders:  requestHeaders(&extprocv3.CommonResponse{}),
	RequestBody:     requestBody(&extprocv3.CommonResponse{}),
	RequestTrailers: requestTrailers(),
	ResponseHeaders: responseHeaders(&extprocv3.CommonResponse{}),
	ResponseBody: {Response: &extprocv3.ProcessingResponse_ResponseBody{
		ResponseBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{}},
	}},
	ResponseTrailers: {Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}},
}

// encode turns a reply into the protocol's message. Bodies are referred to, not copied.
func encode(r *Reply) *extprocv3.ProcessingResponse {
	switch {
	case r.Kind == Immediate:
		return refusal(r.Refusal)
	case r.Streamed:
		return streamedBody(r)
	case r.Destination != "":
		return destination(r)
	case r.Picked != "":
		return responseHeaders(&extprocv3.CommonResponse{HeaderMutation: setHeader(headerPicked, r.Picked)})
	}
	return plain[r.Kind]
}

// destination is the reply that names the endpoint: in a header, which replaces the client's own of that name, and in
// metadata, for gateways that go by it. On trailers it is in metadata alone, as headers set there would be trailers.
func destination(r *Reply) *extprocv3.ProcessingResponse {
	named := &extprocv3.CommonResponse{ClearRouteCache: true, HeaderMutation: setHeader(headerDestination, r.Destination)}
	var out *extprocv3.ProcessingResponse
	switch r.Kind {
	case RequestBody:
		out = requestBody(named)
	case RequestTrailers:
		out = requestTrailers()
	default:
		out = requestHeaders(named)
	}
	lb := &structpb.Struct{Fields: map[string]*structpb.Value{headerDestination: structpb.NewStringValue(r.Destination)}}
	out.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{lbNamespace: structpb.NewStructValue(lb)}}
	return out
}

// bodyReply is a streamed body reply and all that it consists of, in one piece of memory: there is one for each token
// of a response.
type bodyReply struct {
	message    extprocv3.ProcessingResponse
	request    extprocv3.ProcessingResponse_RequestBody
	response   extprocv3.ProcessingResponse_ResponseBody
	body       extprocv3.BodyResponse
	common     extprocv3.CommonResponse
	mutation   extprocv3.BodyMutation
	isStreamed extprocv3.BodyMutation_StreamedResponse
	streamed   extprocv3.StreamedBodyResponse
}

func streamedBody(r *Reply) *extprocv3.ProcessingResponse {
	b := &bodyReply{}
	b.streamed.Body, b.streamed.EndOfStream = r.Body, r.EndOfStream
	b.isStreamed.StreamedResponse = &b.streamed
	b.mutation.Mutation = &b.isStreamed
	b.common.BodyMutation = &b.mutation
	b.body.Response = &b.common
	if r.Kind == RequestBody {
		b.request.RequestBody = &b.body
		b.message.Response = &b.request
	} else {
		b.response.ResponseBody = &b.body
		b.message.Response = &b.response
	}
	return &b.message
}

func refusal(r *Refusal) *extprocv3.ProcessingResponse {
	out := &extprocv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Code)},
		Body:    []byte(r.Text),
		Details: "endpoint_picker_refused",
	}
	if r.Reason != "" {
		out.Headers = setHeader(headerDroppedReason, r.Reason)
	}
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: out}}
}

func setHeader(key, value string) *extprocv3.HeaderMutation {
	return &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{
		Header:       &corev3.HeaderValue{Key: key, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

func requestHeaders(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{
		RequestHeaders: &extprocv3.HeadersResponse{Response: r},
	}}
}

func requestBody(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{
		RequestBody: &extprocv3.BodyResponse{Response: r},
	}}
}

func requestTrailers() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{
		RequestTrailers: &extprocv3.TrailersResponse{},
	}}
}

func responseHeaders(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{
		ResponseHeaders: &extprocv3.HeadersResponse{Response: r},
	}}
}
