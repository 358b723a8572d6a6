package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	sampled = "00-" + traceID + "-" + spanID + "-01"
	dropped = "00-" + traceID + "-" + spanID + "-00"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func after(d time.Duration) time.Time { return noon.Add(d) }

// kept keeps spans, and fails as long as it is told to.
type kept struct {
	mu    sync.Mutex
	spans tracetest.SpanStubs
	fails error
}

func (k *kept) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spans = append(k.spans, tracetest.SpanStubsFromReadOnlySpans(spans)...)
	return k.fails
}

func (k *kept) Shutdown(context.Context) error { return nil }

func (k *kept) named(t *testing.T, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range k.spans {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no span %s", name)
	return tracetest.SpanStub{}
}

// run starts a tracer and returns what stops it.
func run(t *testing.T, o Options) (tr *Tracer, exported *kept, stop func()) {
	t.Helper()
	exported = &kept{}
	tr = New(o, zap.NewNop(), "v1")
	tr.newExporter = func(context.Context) (sdktrace.SpanExporter, error) { return exported, nil }
	return tr, exported, start(t, tr)
}

func start(t *testing.T, tr *Tracer) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { tr.Run(ctx) })
	stop := func() { cancel(); group.Wait() }
	t.Cleanup(stop)
	require.Eventually(t, func() bool { return tr.tracer.Load() != nil }, kubetest.Patience, time.Millisecond)
	return stop
}

func always() Options { return Options{Exporter: exporterOTLP, ParentBased: true, Ratio: 1} }

func newEndpoint() *endpoint.Endpoint {
	return endpoint.New(endpoint.Description{Identity: endpoint.Identity{Namespace: "ns", Pod: "a", Address: netip.MustParseAddrPort("[2001:db8::1]:8000")}},
		noon, nil)
}

func streamed() *request.Record {
	return &request.Record{
		PickRecord: request.PickRecord{
			Model: "chat", Target: "chat-v2", Rewrite: "ns/canary", Fairness: "tenant", Objective: "batch", Priority: 2, Streaming: true,
			Endpoint:     newEndpoint(),
			PickDuration: time.Millisecond,
			PromptTokens: 800, MatchedTokens: 600,
			Scores: make([]request.Score, 3),
		},
		Outcome: request.Completed, RequestID: "r-1", TraceParent: sampled, Path: "/v1/chat/completions?key=secret",
		Served: "10.0.0.9:1", Status: 200,
		StartTime: noon, ArrivalTime: after(3 * time.Millisecond), FirstContent: after(200 * time.Millisecond), EndTime: after(2 * time.Second),
		RequestBytes: 3000, ResponseBytes: 20_000, ContentPieces: 51,
		Usage: request.Usage{Known: true, Prompt: 790, Output: 101, Cached: 640},
	}
}

func TestSpansOfAnExchange(t *testing.T) {
	t.Parallel()
	tr, exported, stop := run(t, always())
	record := streamed()
	var header string
	record.Span, header = tr.StartSpan(record.TraceParent)
	tr.ObserveRequest(record)
	stop()

	require.Len(t, exported.spans, 3)
	request, orchestration, scoring := exported.named(t, spanRequest), exported.named(t, spanOrchestration), exported.named(t, spanScoring)
	assert.Equal(t, fmt.Sprintf("00-%s-%s-01", traceID, request.SpanContext.SpanID()), header, "the model server's parent")
	assert.Equal(t, traceID, request.SpanContext.TraceID().String())
	assert.Equal(t, spanID, request.Parent.SpanID().String())
	assert.True(t, request.Parent.IsRemote())
	assert.Equal(t, request.SpanContext.SpanID(), orchestration.Parent.SpanID())
	assert.Equal(t, orchestration.SpanContext.SpanID(), scoring.Parent.SpanID())
	assert.Equal(t, request.SpanContext.TraceID(), scoring.SpanContext.TraceID())

	for _, tt := range []struct {
		span         tracetest.SpanStub
		began, ended time.Duration
		kind         trace.SpanKind
		want         []attribute.KeyValue
	}{
		{request, 0, 2 * time.Second, trace.SpanKindServer, []attribute.KeyValue{
			attribute.String("fairlead.outcome", "completed"), attribute.Bool("fairlead.streaming", true), attribute.String("url.path", "/v1/chat/completions"),
			attribute.String("gen_ai.request.id", "r-1"), attribute.String("gen_ai.request.model", "chat"), attribute.String("gen_ai.response.model", "chat-v2"),
			attribute.String("fairlead.fairness_id", "tenant"), attribute.String("fairlead.objective", "batch"), attribute.String("fairlead.rewrite", "ns/canary"),
			attribute.String("fairlead.served", "10.0.0.9:1"), attribute.Int("http.response.status_code", 200),
			attribute.Int("http.request.body.size", 3000), attribute.Int("http.response.body.size", 20_000),
			attribute.Int("gen_ai.usage.input_tokens", 790), attribute.Int("gen_ai.usage.output_tokens", 101), attribute.Int("gen_ai.usage.cache_read.input_tokens", 640),
		}},
		{orchestration, 0, 4 * time.Millisecond, trace.SpanKindInternal, []attribute.KeyValue{
			attribute.String("target_model", "chat-v2"), attribute.Int("request_prio", 2),
		}},
		{scoring, 3 * time.Millisecond, 4 * time.Millisecond, trace.SpanKindInternal, []attribute.KeyValue{
			attribute.Int("fairlead.prompt_tokens", 800), attribute.Int("llm_d.epp.scoring.candidate_endpoints", 3), attribute.Int("fairlead.matched_tokens", 600),
			attribute.String("fairlead.pod", "ns/a"), attribute.String("server.address", "2001:db8::1"), attribute.Int("server.port", 8000),
		}},
	} {
		assert.Equal(t, after(tt.began), tt.span.StartTime, tt.span.Name)
		assert.Equal(t, after(tt.ended), tt.span.EndTime, tt.span.Name)
		assert.Equal(t, tt.kind, tt.span.SpanKind, tt.span.Name)
		assert.ElementsMatch(t, tt.want, tt.span.Attributes, tt.span.Name)
		assert.Equal(t, codes.Unset, tt.span.Status.Code, tt.span.Name)
	}
	require.Len(t, request.Events, 1)
	assert.Equal(t, eventFirst, request.Events[0].Name)
	assert.Equal(t, after(200*time.Millisecond), request.Events[0].Time)
	name, _ := request.Resource.Set().Value("service.name")
	assert.Equal(t, defaultService, name.AsString())
}

func TestARequestWithoutParentBeginsATrace(t *testing.T) {
	t.Parallel()
	tr, exported, stop := run(t, always())
	record := streamed()
	record.TraceParent = ""
	var header string
	record.Span, header = tr.StartSpan("")
	tr.ObserveRequest(record)
	stop()
	request := exported.named(t, spanRequest)
	assert.Equal(t, fmt.Sprintf("00-%s-%s-01", request.SpanContext.TraceID(), request.SpanContext.SpanID()), header)
	assert.False(t, request.Parent.IsValid())
	assert.Equal(t, request.SpanContext.TraceID(), exported.named(t, spanScoring).SpanContext.TraceID())
}

func TestSpansOfWhatFailed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(r *request.Record)
		want   map[string]string // description of the error by span
	}{
		{
			name: "no endpoint",
			change: func(r *request.Record) {
				r.Outcome, r.Status, r.Reason, r.Endpoint = request.Refused, 503, "no ready endpoints in the pool", nil
			},
			want: map[string]string{
				spanRequest: "no ready endpoints in the pool", spanOrchestration: "no ready endpoints in the pool", spanScoring: "no ready endpoints in the pool",
			},
		},
		{name: "a model server's error", change: func(r *request.Record) { r.Status = 502 }, want: map[string]string{spanRequest: "502 Bad Gateway", spanOrchestration: "", spanScoring: ""}},
		{name: "a client's error", change: func(r *request.Record) { r.Status = 404 }, want: map[string]string{spanRequest: "", spanOrchestration: "", spanScoring: ""}},
		{
			name: "never whole", want: map[string]string{spanRequest: "the gateway broke the protocol"},
			change: func(r *request.Record) {
				*r = request.Record{Outcome: request.Failed, TraceParent: sampled, StartTime: noon, EndTime: noon, Path: "\xff"}
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tr, exported, stop := run(t, always())
			record := streamed()
			tt.change(record)
			tr.ObserveRequest(record)
			stop()
			got := map[string]string{}
			for _, s := range exported.spans {
				got[s.Name] = s.Status.Description
				assert.Equal(t, s.Status.Description != "", s.Status.Code == codes.Error)
			}
			assert.Equal(t, tt.want, got)
		})
	}
}

func TestBegin(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name        string
		options     Options
		give        string
		wantSampled bool
		wantTrace   string // empty: a new one
	}{
		{name: "sampled by who called", options: Options{ParentBased: true}, give: sampled, wantSampled: true, wantTrace: traceID},
		{name: "not sampled by who called", options: always(), give: dropped, wantTrace: traceID},
		{name: "called by nobody", options: always(), wantSampled: true},
		{name: "called by nobody, none wanted", options: Options{ParentBased: true}},
		{name: "nonsense is nobody", options: always(), give: strings.Replace(sampled, "4bf9", "4BF9", 1), wantSampled: true},
		{name: "own decision", options: Options{Ratio: 1}, give: dropped, wantSampled: true, wantTrace: traceID},
		{name: "own decision against", options: Options{}, give: sampled, wantTrace: traceID},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			span, header := New(tt.options, zap.NewNop(), "").StartSpan(tt.give)
			assert.Equal(t, tt.wantSampled, span.Sampled)
			assert.NotZero(t, span.ID)
			assert.NotZero(t, span.Trace)
			if tt.wantTrace != "" {
				assert.Equal(t, tt.wantTrace, trace.TraceID(span.Trace).String())
			}
			if !tt.wantSampled {
				assert.Empty(t, header, "the request's own stays")
				return
			}
			assert.Equal(t, fmt.Sprintf("00-%s-%s-01", trace.TraceID(span.Trace), trace.SpanID(span.ID)), header)
		})
	}
}

func TestWhatIsNotSampledIsNotExported(t *testing.T) {
	t.Parallel()
	tr, exported, stop := run(t, always())
	decided := streamed()
	decided.TraceParent = ""
	decided.Span = request.Span{Trace: [16]byte{1}, ID: [8]byte{2}}
	tr.ObserveRequest(decided)
	undecided := streamed()
	undecided.TraceParent = dropped
	tr.ObserveRequest(undecided)
	stop()
	assert.Empty(t, exported.spans)
	tr.ObserveRequest(streamed())
	assert.Empty(t, exported.spans, "nor is what comes too late")
}

func TestSamplerAgreesWithOthers(t *testing.T) {
	t.Parallel()
	for _, ratio := range []float64{0, 0.1, 0.5, 0.999, 1} {
		reference := sdktrace.TraceIDRatioBased(ratio)
		ours := Options{Ratio: ratio}
		for range 2000 {
			id := newTraceID()
			want := reference.ShouldSample(sdktrace.SamplingParameters{ParentContext: t.Context(), TraceID: id}).Decision == sdktrace.RecordAndSample
			require.Equal(t, want, ours.isSampled(id, request.Span{}, false))
		}
	}
}

func TestFromEnvironment(t *testing.T) {
	t.Parallel()
	const endpoint = "http://collector:4317"
	tests := []struct {
		name string
		give map[string]string
		want Options
	}{
		{name: "nothing", want: Off()},
		{name: "a sampler alone is nothing", give: map[string]string{"OTEL_TRACES_SAMPLER": "always_on"}, want: Off()},
		{name: "an endpoint", give: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, want: Options{Exporter: "otlp", ParentBased: true, Ratio: 0.1}},
		{name: "an endpoint of traces", give: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": endpoint}, want: Options{Exporter: "otlp", ParentBased: true, Ratio: 0.1}},
		{name: "an exporter", give: map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, want: Options{Exporter: "otlp", Local: true, ParentBased: true, Ratio: 0.1}},
		{name: "console", give: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, want: Options{Exporter: "console", Local: true, ParentBased: true, Ratio: 0.1}},
		{name: "none", give: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, want: Off()},
		{name: "disabled", give: map[string]string{"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}, want: Off()},
		{name: "ratio", give: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER_ARG": "0.25"}, want: Options{Exporter: "otlp", ParentBased: true, Ratio: 0.25}},
		{
			name: "always", want: Options{Exporter: "otlp", Ratio: 1},
			give: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": "always_on", "OTEL_TRACES_SAMPLER_ARG": "what"},
		},
		{name: "parent only", give: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}, want: Options{Exporter: "otlp", ParentBased: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := FromEnvironment(func(name string) string { return tt.give[name] })
			require.NoError(t, err)
			assert.Equal(t, tt.want, got)
			assert.Equal(t, tt.want.Exporter != "none", New(got, zap.NewNop(), "").IsEnabled())
		})
	}
}

func TestFromEnvironmentSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "zipkin", `OTEL_TRACES_EXPORTER "zipkin" is not one of otlp, console, none`},
		{"OTEL_TRACES_SAMPLER", "jaeger_remote", `OTEL_TRACES_SAMPLER "jaeger_remote" is not one of always_on, always_off, traceidratio, optionally prefixed with parentbased_`},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", `OTEL_TRACES_SAMPLER_ARG "NaN" is not a ratio: give 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG", "10", `OTEL_TRACES_SAMPLER_ARG "10" is not a ratio: give 0 to 1`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", `OTEL_EXPORTER_OTLP_PROTOCOL "http/protobuf" is not supported: only grpc is`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", `OTEL_EXPORTER_OTLP_ENDPOINT "collector:4317" is not a URL: give http://host:4317, or https for TLS`},
	}
	for _, tt := range tests {
		t.Run(tt.name+"="+tt.value, func(t *testing.T) {
			t.Parallel()
			_, err := FromEnvironment(func(name string) string {
				return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317", tt.name: tt.value}[name]
			})
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestDisabledTracerEndsAtOnce(t *testing.T) {
	t.Parallel()
	tr := New(Off(), zap.NewNop(), "")
	assert.False(t, tr.IsEnabled())
	tr.Run(t.Context())
	tr.ObserveRequest(streamed())
}

func TestExporterThatCannotBeMade(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	tr := New(always(), zap.New(core), "")
	tr.newExporter = func(context.Context) (sdktrace.SpanExporter, error) { return nil, errors.New("no certificate") }
	tr.Run(t.Context())
	assert.Equal(t, 1, logs.FilterMessage("Could not start tracing, continued without it").Len())
}

func TestFailingExportIsSaidOnce(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	exporter := &kept{fails: errors.New("refused")}
	r := &reporter{SpanExporter: exporter, log: zap.New(core)}
	for range 3 {
		require.NoError(t, r.ExportSpans(t.Context(), nil))
	}
	exporter.fails = nil
	for range 3 {
		require.NoError(t, r.ExportSpans(t.Context(), nil))
	}
	var said []string
	for _, l := range logs.All() {
		said = append(said, l.Level.String()+" "+l.Message)
	}
	assert.Equal(t, []string{"warn Could not export spans, dropping them until an export succeeds", "info Exported spans again"}, said)
}

// A collector that hangs does not hold up the end of the picker.
func TestFlushIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		tr := New(always(), zap.NewNop(), "")
		tr.newExporter = func(context.Context) (sdktrace.SpanExporter, error) { return hanging{end}, nil }
		stop := start(t, tr)
		tr.ObserveRequest(streamed())
		began := time.Now()
		stop()
		assert.Equal(t, flushTimeout, time.Since(began))
	})
}

// hanging is an exporter that waits.
type hanging struct{ end chan struct{} }

func (h hanging) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-h.end
	return nil
}

func (hanging) Shutdown(ctx context.Context) error { return ctx.Err() }

func FuzzParse(f *testing.F) {
	for _, s := range []string{sampled, dropped, "", sampled + "-more", "01" + sampled[2:] + "-more", "01" + sampled[2:] + "more", "ff" + sampled[2:], strings.ToUpper(sampled)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, valid := parseTraceparent(s)
		known := s
		if valid { // the reference refuses flags that it does not know, where the specification has them ignored
			known = s[:flagsAt] + map[bool]string{true: "01", false: "00"}[p.Sampled] + s[length:]
		}
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": known}))
		require.Equal(t, want.IsValid(), valid, "%q", s)
		if valid {
			assert.Equal(t, trace.TraceID(p.Trace), want.TraceID())
			assert.Equal(t, trace.SpanID(p.ID), want.SpanID())
			assert.Equal(t, p.Sampled, want.IsSampled())
		}
	})
}

func BenchmarkBegin(b *testing.B) {
	tr := New(Options{ParentBased: true}, zap.NewNop(), "")
	b.Run("not sampled", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.StartSpan(dropped)
		}
	})
	b.Run("sampled", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tr.StartSpan(sampled)
		}
	})
}
