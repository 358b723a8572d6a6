package extproc

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// reference is what a reply is in the generated code.
func reference(r *Reply) *extprocv3.ProcessingResponse {
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
	switch r.Kind {
	case RequestHeaders:
		return requestHeaders(&extprocv3.CommonResponse{})
	case RequestBody:
		return requestBody(&extprocv3.CommonResponse{})
	case RequestTrailers:
		return requestTrailers()
	case ResponseBody:
		return responseBody(&extprocv3.CommonResponse{})
	case ResponseTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
	default:
		return responseHeaders(&extprocv3.CommonResponse{})
	}
}

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

func streamedBody(r *Reply) *extprocv3.ProcessingResponse {
	common := &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_StreamedResponse{
		StreamedResponse: &extprocv3.StreamedBodyResponse{Body: content(r.Body), EndOfStream: r.EndOfStream},
	}}}
	if r.Kind == RequestBody {
		return requestBody(common)
	}
	return responseBody(common)
}

func responseBody(r *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{Response: r}}}
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
