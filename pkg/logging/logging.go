// Package logging creates the logger of a process and carries loggers in contexts.
//
// A service creates its logger with New, redirects klog to it with BridgeKlog, and injects it. Only BridgeKlog changes global
// state. A line contains time, level, logger and message, then the fields; their keys are the constants of this package. Lines
// contain no stack traces and no callers: wrapped errors show their origin.
package logging

import (
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type contextKey struct{}

// New returns a logger that writes to w. w does not have to be safe for concurrent use.
func New(o Options, w io.Writer) (*zap.Logger, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	level, err := zapcore.ParseLevel(o.Level)
	if err != nil {
		return nil, fmt.Errorf("parse log level: %w", err)
	}
	sink := zapcore.Lock(zapcore.AddSync(w))
	return zap.New(zapcore.NewCore(newEncoder(o.Format), sink, level), zap.ErrorOutput(sink)), nil
}

// WithContext returns a context from which FromContext returns log.
func WithContext(ctx context.Context, log *zap.Logger) context.Context {
	return context.WithValue(ctx, contextKey{}, log)
}

// FromContext returns the logger in ctx, or a no-op logger.
func FromContext(ctx context.Context) *zap.Logger {
	if log, ok := ctx.Value(contextKey{}).(*zap.Logger); ok {
		return log
	}
	return zap.NewNop()
}

func newEncoder(format string) zapcore.Encoder {
	cfg := zap.NewProductionEncoderConfig()
	cfg.TimeKey, cfg.MessageKey, cfg.EncodeTime = "time", "message", zapcore.RFC3339NanoTimeEncoder
	if format == FormatConsole {
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeDuration = zapcore.StringDurationEncoder
		return zapcore.NewConsoleEncoder(cfg)
	}
	return zapcore.NewJSONEncoder(cfg)
}
