package envoytest

import (
	"slices"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// Headers makes a HeaderMap in Envoy's format from alternating names and values.
func Headers(pairs ...string) *corev3.HeaderMap {
	m := &corev3.HeaderMap{}
	for pair := range slices.Chunk(pairs, 2) {
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: pair[0], RawValue: []byte(pair[1])})
	}
	return m
}

// Metadata makes metadata with one value.
func Metadata(namespace, key string, v *structpb.Value) *corev3.Metadata {
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: {Fields: map[string]*structpb.Value{key: v}}}}
}

// RequestHeaders makes the first message of a request.
func RequestHeaders(h *extprocv3.HttpHeaders) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: h}}
}

// RequestBody makes a piece of a request.
func RequestBody(b *extprocv3.HttpBody) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: b}}
}

// RequestTrailers makes the end of a request.
func RequestTrailers(pairs ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestTrailers{
		RequestTrailers: &extprocv3.HttpTrailers{Trailers: Headers(pairs...)},
	}}
}

// ResponseHeaders makes the first message of a response.
func ResponseHeaders(h *extprocv3.HttpHeaders) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}}
}

// ResponseBody makes a piece of a response.
func ResponseBody(b *extprocv3.HttpBody) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: b}}
}

// ResponseTrailers makes the end of a response.
func ResponseTrailers(pairs ...string) *extprocv3.ProcessingRequest {
	return &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseTrailers{
		ResponseTrailers: &extprocv3.HttpTrailers{Trailers: Headers(pairs...)},
	}}
}
