package extproc

import (
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// reference is what a reply is in the generated code.
func reference(r *Reply) *extprocv3.ProcessingResponse {
	switch {
	case r.Kind == Immediate:
		return refusal(r.Refusal, r.ErrorFormat)
	case r.Content == Streamed:
		return streamedBody(r)
	}
	common := &extprocv3.CommonResponse{ClearRouteCache: r.Destination != ""}
	if r.Destination != "" {
		common.HeaderMutation = setHeaders(request.HeaderDestination, r.Destination)
	}
	if !r.Headers.areUnchanged() {
		if common.HeaderMutation == nil {
			common.HeaderMutation = &extprocv3.HeaderMutation{}
		}
		for _, h := range r.Headers.Set {
			common.HeaderMutation.SetHeaders = append(common.HeaderMutation.SetHeaders, setHeaders(h.Name, h.Value).GetSetHeaders()...)
		}
		common.HeaderMutation.RemoveHeaders = r.Headers.Remove
	}
	if r.Content == Replaced {
		common.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: content(r.Body)}}
	}
	out := inPlace(r.Kind, common)
	if r.Destination != "" {
		lb := &structpb.Struct{Fields: map[string]*structpb.Value{request.HeaderDestination: structpb.NewStringValue(r.Destination)}}
		if len(r.Scores) > 0 {
			scores := &structpb.Struct{Fields: map[string]*structpb.Value{}}
			for _, s := range r.Scores {
				scores.Fields[s.Endpoint.Address()] = structpb.NewNumberValue(s.Total)
			}
			lb.Fields[keyScores] = structpb.NewStructValue(scores)
		}
		out.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{lbNamespace: structpb.NewStructValue(lb)}}
	}
	return out
}

// inPlace puts changes where they belong to in an answer.
func inPlace(kind Kind, common *extprocv3.CommonResponse) *extprocv3.ProcessingResponse {
	switch kind {
	case RequestHeaders:
		return requestHeaders(common)
	case RequestBody:
		return requestBody(common)
	case RequestTrailers:
		return requestTrailers()
	case ResponseBody:
		return responseBody(common)
	case ResponseTrailers:
		return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
	default:
		return responseHeaders(common)
	}
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

func refusal(r *request.Refusal, f request.ErrorFormat) *extprocv3.ProcessingResponse {
	body, contentType := r.EncodeBody(f)
	out := &extprocv3.ImmediateResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(r.Code)},
		Body:    body,
		Details: "endpoint_picker_refused",
	}
	headers := []string{headerContentType, contentType}
	if r.Reason != "" {
		headers = append(headers, request.HeaderDropped, r.Reason)
	}
	if r.RetryAfter > 0 {
		headers = append(headers, "retry-after", fmt.Sprint(r.RetryAfter.Seconds()))
	}
	out.Headers = setHeaders(headers...)
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: out}}
}

func setHeaders(pairs ...string) *extprocv3.HeaderMutation {
	m := &extprocv3.HeaderMutation{}
	for i := 0; i < len(pairs); i += 2 {
		m.SetHeaders = append(m.SetHeaders, &corev3.HeaderValueOption{
			Header:       &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])},
			AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		})
	}
	return m
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
