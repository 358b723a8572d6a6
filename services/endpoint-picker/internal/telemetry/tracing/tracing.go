// Package tracing creates OpenTelemetry spans of finished requests:
//
//	gateway.request                 the whole stream, a child of what the request's traceparent names
//	  gateway.request_orchestration from its beginning to the choice of the endpoint, the arrival of the body included
//	    llm_d.epp.scoring           the choice
//
// The names are the llm-d router's. The spans come from the complete record without further measurements. Until then a
// request costs a few random numbers, and nothing more if it is not sampled. If tracing is off, the package is not called.
//
// StartSpan decides once whether a request is sampled, at the latest at the pick: the traceparent for the model server must name
// a span that will exist.
package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// flushTimeout limits the export of the last spans at shutdown.
const flushTimeout = 5 * time.Second

const scope = "fairlead.dev/services/endpoint-picker"

// Tracer traces requests while it runs.
type Tracer struct {
	log         *zap.Logger
	options     Options
	version     string
	newExporter func(ctx context.Context) (sdktrace.SpanExporter, error)

	tracer atomic.Pointer[trace.Tracer] // nil while it does not run
}

// New returns a Tracer that reports the version of the picker. Run starts it.
func New(o Options, log *zap.Logger, version string) *Tracer {
	return &Tracer{log: log, options: o, version: version, newExporter: o.newExporter}
}

// IsEnabled reports whether an exporter is configured.
func (t *Tracer) IsEnabled() bool { return t.options.Exporter != exporterNone }

// Run exports spans until ctx ends, and then the remaining ones, within flushTimeout.
func (t *Tracer) Run(ctx context.Context) {
	if !t.IsEnabled() {
		return
	}
	lasting := context.WithoutCancel(ctx)
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { t.log.Debug("Tracing reported an error", zap.Error(err)) }))
	exporter, err := t.newExporter(lasting)
	if err != nil {
		t.log.Warn("Could not start tracing, continued without it", zap.Error(err))
		return
	}
	described, err := resource.New(lasting, resource.WithAttributes(
		attribute.String(keyServiceName, defaultService), attribute.String(keyServiceVersion, t.version),
	), resource.WithFromEnv())
	if err != nil { // the readable part is used
		t.log.Warn("Could not read all of OTEL_RESOURCE_ATTRIBUTES", zap.Error(err))
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(&reporter{SpanExporter: exporter, log: t.log}),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // spans of unsampled requests are never created
		sdktrace.WithIDGenerator(ids{}),
		sdktrace.WithResource(described),
	)
	tracer := provider.Tracer(scope, trace.WithInstrumentationVersion(t.version))
	t.tracer.Store(&tracer)
	t.log.Info("Started tracing", zap.String("exporter", t.options.Exporter))
	<-ctx.Done()
	t.tracer.Store(nil)
	bounded, cancel := context.WithTimeout(lasting, flushTimeout)
	defer cancel()
	if err := provider.Shutdown(bounded); err != nil {
		t.log.Warn("Could not export the last spans", zap.Error(err))
	}
}

// StartSpan decides whether a request is traced, by its traceparent, which may be empty or invalid. It returns the span for the
// record, and the traceparent for the model server, empty to keep the request's own.
func (t *Tracer) StartSpan(traceParent string) (span request.Span, header string) {
	parent, known := parseTraceparent(traceParent)
	span.Trace = parent.Trace
	if !known {
		span.Trace = newTraceID()
	}
	span.ID = newSpanID()
	if span.Sampled = t.options.isSampled(span.Trace, parent, known); span.Sampled {
		header = formatTraceparent(span)
	}
	return span, header
}

// ObserveRequest exports the spans of a finished request, if it is sampled. If that is undecided, it decides.
func (t *Tracer) ObserveRequest(r *request.Record) {
	tracer := t.tracer.Load()
	if tracer == nil {
		return
	}
	span := r.Span
	if span.ID == [8]byte{} {
		span, _ = t.StartSpan(r.TraceParent)
	}
	if span.Sampled {
		writeSpans(*tracer, span, r)
	}
}

func newTraceID() (id [16]byte) {
	for id == [16]byte{} {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

func newSpanID() (id [8]byte) {
	for id == [8]byte{} {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// spanKey is the context key of the span that the first one will be.
type spanKey struct{}

// ids gives a span the ID that the model server has received.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if s, found := ctx.Value(spanKey{}).(request.Span); found {
		return s.Trace, s.ID
	}
	return newTraceID(), newSpanID()
}

func (i ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	_, id := i.NewIDs(ctx)
	return id
}

// reporter logs once that the export fails, and once that it works again.
type reporter struct {
	sdktrace.SpanExporter

	log     *zap.Logger
	failing atomic.Bool
}

// ExportSpans exports spans. It drops those that fail, and returns no error, because the caller cannot use it.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !r.failing.Swap(true):
		r.log.Warn("Could not export spans, dropping them until an export succeeds", zap.Error(err))
	case err == nil && r.failing.Swap(false):
		r.log.Info("Exported spans again")
	}
	return nil
}
