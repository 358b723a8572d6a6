// A RequestLog writes one line for each finished request: its model, its endpoint, the result and the durations. It
// logs every request, and no text of prompts or answers.

package recorder

import (
	"encoding/hex"
	"strings"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// Keys of this log only.
const (
	keyStreaming     = "streaming"
	keyServed        = "served" // the endpoint that served, if it differs from the picked one
	keyRewrite       = "rewrite"
	keyPick          = "pick"       // seconds to choose the endpoint
	keyFirst         = "firstToken" // seconds from the start
	keyRequestBytes  = "requestBytes"
	keyResponseBytes = "responseBytes"
	keyPromptTokens  = "promptTokens"  // estimated by the picker
	keyMatchedTokens = "matchedTokens" // of them, in the cache of the picked server, estimated by the picker
	keyInputTokens   = "inputTokens"   // these three are reported by the model server
	keyOutputTokens  = "outputTokens"
	keyCachedTokens  = "cachedTokens"
)

// maxLength limits strings that clients choose.
const maxLength = 256

// RequestLog is the log of requests.
type RequestLog struct {
	log *zap.Logger
}

// NewLog returns a RequestLog.
func NewLog(log *zap.Logger) *RequestLog { return &RequestLog{log: log} }

// ObserveRequest writes the line of a finished request.
func (l *RequestLog) ObserveRequest(r *request.Record) {
	entry := l.log.Check(zap.InfoLevel, "Handled request")
	if entry == nil {
		return
	}
	f := make(logFields, 0, 26)
	f = append(f, zap.String(logging.KeyOutcome, string(r.Outcome)), zap.Duration(logging.KeyDuration, r.EndTime.Sub(r.StartTime)))
	f.addRequest(r)
	f.addResponse(r)
	entry.Write(f...)
}

// logFields are the fields of a line. Unknown values are omitted.
type logFields []zap.Field

func (f *logFields) addText(key, value string) {
	if value != "" {
		*f = append(*f, zap.String(key, value[:min(len(value), maxLength)]))
	}
}

func (f *logFields) addNumber(key string, value int) {
	if value != 0 {
		*f = append(*f, zap.Int(key, value))
	}
}

func (f *logFields) addRequest(r *request.Record) {
	path, _, _ := strings.Cut(r.Path, "?") // the query may contain secrets
	f.addText(logging.KeyRequestID, r.RequestID)
	if r.Span.Sampled {
		f.addText(logging.KeyTraceID, hex.EncodeToString(r.Span.Trace[:]))
	}
	f.addText(logging.KeyPath, path)
	f.addText(logging.KeyModel, r.Model)
	f.addText(logging.KeyTarget, r.Target)
	f.addText(keyRewrite, r.Rewrite)
	f.addText(logging.KeyFairness, r.Fairness)
	f.addText(logging.KeyObjective, r.Objective)
	f.addNumber(logging.KeyPriority, r.Priority)
	f.addNumber(keyRequestBytes, r.RequestBytes)
	f.addNumber(keyPromptTokens, r.PromptTokens)
	if r.Endpoint == nil {
		return
	}
	f.addText(logging.KeyEndpoint, r.Endpoint.Address())
	f.addText(logging.KeyPod, r.Endpoint.Identity().PodName())
	if r.HasMoved() {
		f.addText(keyServed, r.Served)
	}
	f.addNumber(keyMatchedTokens, r.MatchedTokens)
	*f = append(*f, zap.Duration(keyPick, r.PickDuration))
}

func (f *logFields) addResponse(r *request.Record) {
	f.addNumber(logging.KeyStatus, r.Status)
	f.addText(logging.KeyReason, r.Reason)
	if r.Streaming {
		*f = append(*f, zap.Bool(keyStreaming, true))
	}
	if !r.FirstContent.IsZero() {
		*f = append(*f, zap.Duration(keyFirst, r.FirstContent.Sub(r.StartTime)))
	}
	f.addNumber(keyResponseBytes, r.ResponseBytes)
	if r.Usage.Known {
		*f = append(*f, zap.Int(keyInputTokens, r.Usage.Prompt), zap.Int(keyOutputTokens, r.Usage.Output))
		f.addNumber(keyCachedTokens, r.Usage.Cached)
	}
}
