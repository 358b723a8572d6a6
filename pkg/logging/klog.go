package logging

import (
	"strconv"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// maxKlogLevel is the highest klog verbosity that is logged, at level debug. From verbosity 6, client-go logs every request;
// from 8, it logs whole bodies, including Secrets.
const maxKlogLevel = 4

// BridgeKlog sends the klog output of client-go to log with the name "klog": V(0) as info, V(1) to V(4) as debug, errors as
// errors. The klog settings are global and not synchronized, so call it once, at startup, before creating any client.
func BridgeKlog(log *zap.Logger) {
	sink := klogSink{zapr.NewLoggerWithOptions(log.Named("klog"), zapr.LogInfoLevel("")).GetSink()}
	verbosity := 0
	if sink.Enabled(1) {
		verbosity = maxKlogLevel
	}
	var level klog.Level
	// Set fails only for non-numbers.
	_ = level.Set(strconv.Itoa(verbosity))
	klog.SetLoggerWithOptions(logr.New(sink), klog.ContextualLogger(true))
}

// klogSink maps all klog verbosities above 0 to the debug level of zap. zapr alone maps V(2) to a level below debug, which New's
// loggers never print.
type klogSink struct {
	logr.LogSink
}

func (s klogSink) Enabled(level int) bool {
	return level <= maxKlogLevel && s.LogSink.Enabled(min(level, 1))
}

func (s klogSink) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(min(level, 1), msg, keysAndValues...)
}

func (s klogSink) WithValues(keysAndValues ...any) logr.LogSink {
	return klogSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s klogSink) WithName(name string) logr.LogSink {
	return klogSink{s.LogSink.WithName(name)}
}
