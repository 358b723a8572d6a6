package tracing

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	exporterOTLP    = "otlp"
	exporterConsole = "console"
	exporterNone    = "none"

	defaultService = "endpoint-picker"
	defaultSampler = "parentbased_traceidratio"
	defaultRatio   = 0.1
)

// Options configures tracing and its exporter.
type Options struct {
	Exporter    string  // otlp, console or none
	Local       bool    // no endpoint is configured: use a collector on this machine, in plaintext
	ParentBased bool    // follow the decision in the request's traceparent
	Ratio       float64 // of all other requests
}

// Off returns options that disable tracing.
func Off() Options { return Options{Exporter: exporterNone} }

// FromEnvironment reads OpenTelemetry's variables. Without an exporter and an endpoint, tracing is disabled. The exporter
// itself reads its own variables (headers, certificates, timeouts, names of the service).
func FromEnvironment(get func(string) string) (Options, error) {
	endpoint := cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), get("OTEL_EXPORTER_OTLP_ENDPOINT"))
	o := Options{Exporter: get("OTEL_TRACES_EXPORTER"), Local: endpoint == ""}
	switch {
	case strings.EqualFold(get("OTEL_SDK_DISABLED"), "true"), o.Exporter == "" && endpoint == "":
		return Off(), nil
	case o.Exporter == "":
		o.Exporter = exporterOTLP
	case o.Exporter == exporterNone:
		return Off(), nil
	case o.Exporter != exporterOTLP && o.Exporter != exporterConsole:
		return Options{}, fmt.Errorf("OTEL_TRACES_EXPORTER %q is not one of %s, %s, %s", o.Exporter, exporterOTLP, exporterConsole,
			exporterNone)
	}
	if o.Exporter == exporterOTLP {
		if err := checkOTLP(endpoint, cmp.Or(get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"), get("OTEL_EXPORTER_OTLP_PROTOCOL"))); err != nil {
			return Options{}, err
		}
	}
	return o, o.readSampler(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG"))
}

// checkOTLP detects errors that the exporter would not report.
func checkOTLP(endpoint, protocol string) error {
	if protocol != "" && protocol != "grpc" {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL %q is not supported: only grpc is", protocol)
	}
	if endpoint != "" && !strings.HasPrefix(endpoint, "http://") && !strings.HasPrefix(endpoint, "https://") {
		return fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT %q is not a URL: give http://host:4317, or https for TLS", endpoint)
	}
	return nil
}

func (o *Options) readSampler(name, argument string) error {
	name, o.ParentBased = strings.CutPrefix(cmp.Or(name, defaultSampler), "parentbased_")
	switch name {
	case "always_on":
		o.Ratio = 1
	case "always_off":
		o.Ratio = 0
	case "traceidratio":
		o.Ratio = defaultRatio
		if argument == "" {
			return nil
		}
		ratio, err := strconv.ParseFloat(argument, 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return fmt.Errorf("OTEL_TRACES_SAMPLER_ARG %q is not a ratio: give 0 to 1", argument)
		}
		o.Ratio = ratio
	default:
		return fmt.Errorf("OTEL_TRACES_SAMPLER %q is not one of always_on, always_off, traceidratio, optionally prefixed with parentbased_",
			name)
	}
	return nil
}

func (o Options) newExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	if o.Exporter == exporterConsole {
		return stdouttrace.New(stdouttrace.WithWriter(os.Stdout))
	}
	var options []otlptracegrpc.Option
	if o.Local {
		options = append(options, otlptracegrpc.WithEndpoint("localhost:4317"), otlptracegrpc.WithInsecure())
	}
	return otlptracegrpc.New(ctx, options...)
}

// isSampled decides like every OpenTelemetry SDK with the same settings, so that all services on a request's path agree.
func (o *Options) isSampled(trace [16]byte, parent request.Span, known bool) bool { //nolint:revive // whether there is a parent
	if o.ParentBased && known {
		return parent.Sampled
	}
	return binary.BigEndian.Uint64(trace[8:])>>1 < uint64(o.Ratio*(1<<63)) // of 63 bits
}
