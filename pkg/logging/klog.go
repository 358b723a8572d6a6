package logging

import (
	"strconv"

	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

// maxKlogLevel is the highest klog verbosity let through, at debug. From 6 on client-go logs every request, from 8 on
// whole bodies, Secrets among them.
const maxKlogLevel = 4

// BridgeKlog sends what client-go logs through klog to log, named "klog": V(0) as info, V(1) to V(4) as debug, errors
// as errors. klog is global and unsynchronized here, so this is called once, at start, before any client is made.
func BridgeKlog(log *zap.Logger) {
	sink := klogSink{zapr.NewLoggerWithOptions(log.Named("klog"), zapr.LogInfoLevel("")).GetSink()}
	verbosity := 0
	if sink.Enabled(1) {
		verbosity = maxKlogLevel
	}
	var level klog.Level
	// Set fails on non-numbers only.
	_ = level.Set(strconv.Itoa(verbosity))
	klog.SetLoggerWithOptions(logr.New(sink), klog.ContextualLogger(true))
}

// klogSink folds klog's open-ended verbosity into zap's one debug level: zapr alone turns V(2) into a level below
// debug, which no logger of ours shows.
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
