package tracing

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Names of spans, from the llm-d router.
const (
	spanRequest       = "gateway.request"
	spanOrchestration = "gateway.request_orchestration"
	spanScoring       = "llm_d.epp.scoring"
	eventFirst        = "gen_ai.first_token"
)

// Names of attributes, from OpenTelemetry, from the llm-d router, and our own.
const (
	keyServiceName    = "service.name"
	keyServiceVersion = "service.version"
	keyMethodPath     = "url.path"
	keyStatus         = "http.response.status_code"
	keyRequestSize    = "http.request.body.size"
	keyResponseSize   = "http.response.body.size"
	keyServer         = "server.address"
	keyPort           = "server.port"

	keyRequestID     = "gen_ai.request.id"
	keyRequestModel  = "gen_ai.request.model"
	keyResponseModel = "gen_ai.response.model"
	keyInput         = "gen_ai.usage.input_tokens"
	keyOutput        = "gen_ai.usage.output_tokens"
	keyCached        = "gen_ai.usage.cache_read.input_tokens"

	keyTarget     = "target_model"
	keyPriority   = "request_prio"
	keyCandidates = "llm_d.epp.scoring.candidate_endpoints"

	keyOutcome   = "fairlead.outcome"
	keyStreaming = "fairlead.streaming"
	keyFairness  = "fairlead.fairness_id"
	keyObjective = "fairlead.objective"
	keyRewrite   = "fairlead.rewrite"
	keyReason    = "fairlead.reason"
	keyServed    = "fairlead.served"
	keyPod       = "fairlead.pod"
	keyPrompt    = "fairlead.prompt_tokens"
	keyMatched   = "fairlead.matched_tokens"
)

// writeSpans creates the spans of a request.
func writeSpans(tracer trace.Tracer, span request.Span, r *request.Record) {
	ctx := context.WithValue(context.Background(), spanKey{}, span)
	if parent, known := parseTraceparent(r.TraceParent); known {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: parent.Trace, SpanID: parent.ID, TraceFlags: trace.FlagsSampled, Remote: true,
		}))
	}
	_, requestSpan := tracer.Start(ctx, spanRequest, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(r.StartTime),
		trace.WithAttributes(requestAttributes(r)...))
	if !r.FirstContent.IsZero() {
		requestSpan.AddEvent(eventFirst, trace.WithTimestamp(r.FirstContent))
	}
	if why := failureReason(r); why != "" {
		requestSpan.SetStatus(codes.Error, why)
	}
	if !r.ArrivalTime.IsZero() {
		writePick(tracer, requestSpan, r)
	}
	requestSpan.End(trace.WithTimestamp(r.EndTime))
}

// writePick creates the spans up to the choice of the endpoint.
func writePick(tracer trace.Tracer, requestSpan trace.Span, r *request.Record) {
	chosen := r.DispatchTime().Add(r.PickDuration)
	child := func(parent trace.Span, name string, began time.Time, attributes []attribute.KeyValue) trace.Span {
		ctx := trace.ContextWithSpan(context.Background(), parent)
		_, s := tracer.Start(ctx, name, trace.WithTimestamp(began), trace.WithAttributes(attributes...))
		return s
	}
	orchestration := child(requestSpan, spanOrchestration, r.StartTime, []attribute.KeyValue{
		attribute.String(keyTarget, validText(r.Target)), attribute.Int(keyPriority, r.Priority),
	})
	scoring := child(orchestration, spanScoring, r.DispatchTime(), pickAttributes(r))
	if r.Endpoint == nil {
		scoring.SetStatus(codes.Error, validText(r.Reason))
		orchestration.SetStatus(codes.Error, validText(r.Reason))
	}
	scoring.End(trace.WithTimestamp(chosen))
	orchestration.End(trace.WithTimestamp(chosen))
}

func requestAttributes(r *request.Record) []attribute.KeyValue {
	path, _, _ := strings.Cut(r.Path, "?") // the query may contain secrets
	a := attributes{attribute.String(keyOutcome, string(r.Outcome)), attribute.Bool(keyStreaming, r.Streaming)}
	a.addAttribute(keyMethodPath, path)
	a.addAttribute(keyRequestID, r.RequestID)
	a.addAttribute(keyRequestModel, r.Model)
	a.addAttribute(keyResponseModel, r.Target)
	a.addAttribute(keyFairness, r.Fairness)
	a.addAttribute(keyObjective, r.Objective)
	a.addAttribute(keyRewrite, r.Rewrite)
	a.addAttribute(keyReason, r.Reason)
	if r.HasMoved() {
		a.addAttribute(keyServed, r.Served)
	}
	a.addNumber(keyStatus, r.Status)
	a.addNumber(keyRequestSize, r.RequestBytes)
	a.addNumber(keyResponseSize, r.ResponseBytes)
	if r.Usage.Known {
		a = append(a, attribute.Int(keyInput, r.Usage.Prompt), attribute.Int(keyOutput, r.Usage.Output))
		a.addNumber(keyCached, r.Usage.Cached)
	}
	return a
}

func pickAttributes(r *request.Record) []attribute.KeyValue {
	a := attributes{attribute.Int(keyPrompt, r.PromptTokens)}
	a.addNumber(keyCandidates, len(r.Scores))
	if r.Endpoint != nil {
		id := r.Endpoint.Identity()
		a = append(a, attribute.Int(keyMatched, r.MatchedTokens), attribute.String(keyPod, id.PodName()),
			attribute.String(keyServer, id.Address.Addr().String()), attribute.Int(keyPort, int(id.Address.Port())))
	}
	return a
}

// failureReason returns the reason why a request failed, if it did. Clients' errors are not failures of the server's span.
func failureReason(r *request.Record) string {
	switch {
	case r.Outcome == request.Failed:
		return "the gateway broke the protocol"
	case r.Status < http.StatusInternalServerError:
		return ""
	case r.Reason != "":
		return validText(r.Reason)
	}
	return fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status))
}

// attributes are the attributes of a span. Unknown values are omitted.
type attributes []attribute.KeyValue

func (a *attributes) addAttribute(key, value string) {
	if value != "" {
		*a = append(*a, attribute.String(key, validText(value)))
	}
}

func (a *attributes) addNumber(key string, value int) {
	if value != 0 {
		*a = append(*a, attribute.Int(key, value))
	}
}

// validText returns a string that can be exported: protocol buffers accept only valid UTF-8, and an invalid string loses the
// whole batch. Clients choose some of the strings, so text limits their length and copies them.
func validText(s string) string {
	const most = 256
	return strings.Clone(strings.ToValidUTF8(s[:min(len(s), most)], "?"))
}
