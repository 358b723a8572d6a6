// Package logging makes the one logger of a process and carries it in contexts.
//
// A service makes its logger from Options with New, hands klog over to it with BridgeKlog, and injects it; nothing
// here is global but the klog bridge. Lines carry time, level, logger and message, then the fields, whose keys are the
// constants of this package. There are no stack traces and no callers: an error says where it comes from.
package logging

import (
	"context"
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

type contextKey struct{}

// New makes a logger that writes to w, which need not be safe for concurrent use.
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

// WithContext returns a context that carries log to FromContext.
func WithContext(ctx context.Context, log *zap.Logger) context.Context {
	return context.WithValue(ctx, contextKey{}, log)
}

// FromContext returns the logger that ctx carries, or one that writes nothing.
func FromContext(ctx context.Context) *zap.Logger {
	if log, ok := ctx.Value(contextKey{}).(*zap.Logger); ok {
		return log
	}
	return zap.NewNop()
}

func newEncoder(format string) zapcore.Encoder {
	cfg := zapcore.EncoderConfig{
		TimeKey:        "time",
		LevelKey:       "level",
		NameKey:        "logger",
		MessageKey:     "message",
		LineEnding:     zapcore.DefaultLineEnding,
		EncodeTime:     zapcore.RFC3339NanoTimeEncoder,
		EncodeLevel:    zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.SecondsDurationEncoder,
		EncodeName:     zapcore.FullNameEncoder,
	}
	if format == FormatConsole {
		cfg.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		cfg.EncodeDuration = zapcore.StringDurationEncoder
		return zapcore.NewConsoleEncoder(cfg)
	}
	return zapcore.NewJSONEncoder(cfg)
}
