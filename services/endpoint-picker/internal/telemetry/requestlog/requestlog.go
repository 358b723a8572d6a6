// Package requestlog writes one line for each finished exchange: the request, its endpoint, the result and the durations. It
// logs every exchange, and no text of prompts or answers.
package requestlog

import (
	"encoding/hex"
	"strings"

	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/services/endpoint-picker/internal/exchange"
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

// Log is the log of requests.
type Log struct {
	log *zap.Logger
}

// New returns a Log.
func New(log *zap.Logger) *Log { return &Log{log: log} }

// ObserveRequest writes the line of a finished exchange.
func (l *Log) ObserveRequest(r *exchange.Record) {
	entry := l.log.Check(zap.InfoLevel, "Handled request")
	if entry == nil {
		return
	}
	f := make(fields, 0, 26)
	f = append(f, zap.String(logging.KeyOutcome, string(r.Outcome)), zap.Duration(logging.KeyDuration, r.EndTime.Sub(r.StartTime)))
	f.request(r)
	f.response(r)
	entry.Write(f...)
}

// fields are the fields of a line. Unknown values are omitted.
type fields []zap.Field

func (f *fields) text(key, value string) {
	if value != "" {
		*f = append(*f, zap.String(key, value[:min(len(value), maxLength)]))
	}
}

func (f *fields) number(key string, value int) {
	if value != 0 {
		*f = append(*f, zap.Int(key, value))
	}
}

func (f *fields) request(r *exchange.Record) {
	path, _, _ := strings.Cut(r.Path, "?") // the query may contain secrets
	f.text(logging.KeyRequestID, r.RequestID)
	if r.Span.Sampled {
		f.text(logging.KeyTraceID, hex.EncodeToString(r.Span.Trace[:]))
	}
	f.text(logging.KeyPath, path)
	f.text(logging.KeyModel, r.Model)
	f.text(logging.KeyTarget, r.Target)
	f.text(keyRewrite, r.Rewrite)
	f.text(logging.KeyFairness, r.Fairness)
	f.text(logging.KeyObjective, r.Objective)
	f.number(logging.KeyPriority, r.Priority)
	f.number(keyRequestBytes, r.RequestBytes)
	f.number(keyPromptTokens, r.PromptTokens)
	if r.Endpoint == nil {
		return
	}
	id := r.Endpoint.Identity()
	f.text(logging.KeyEndpoint, r.Endpoint.Address())
	f.text(logging.KeyPod, id.Namespace+"/"+id.Pod)
	if r.HasMoved() {
		f.text(keyServed, r.Served)
	}
	f.number(keyMatchedTokens, r.MatchedTokens)
	*f = append(*f, zap.Duration(keyPick, r.PickDuration))
}

func (f *fields) response(r *exchange.Record) {
	f.number(logging.KeyStatus, r.Status)
	f.text(logging.KeyReason, r.Reason)
	if r.Streaming {
		*f = append(*f, zap.Bool(keyStreaming, true))
	}
	if !r.FirstContent.IsZero() {
		*f = append(*f, zap.Duration(keyFirst, r.FirstContent.Sub(r.StartTime)))
	}
	f.number(keyResponseBytes, r.ResponseBytes)
	if r.Usage.Known {
		*f = append(*f, zap.Int(keyInputTokens, r.Usage.Prompt), zap.Int(keyOutputTokens, r.Usage.Output))
		f.number(keyCachedTokens, r.Usage.Cached)
	}
}
