// Package recorder writes picked requests to a recording, and logs requests (RequestLog). The simulator reads recordings.
//
// The format is that of Mooncake's traces, with more fields that other readers ignore: one JSON object per line. It contains times, lengths
// and hashes, but no text, no header and no name of a client. A hash stands for 512 tokens of a prompt and everything before them, so
// that equal hashes mean equal text after equal text. Its random key is discarded at exit. The lines are in the order in which answers
// ended; readers sort them by arrival.
//
// Requests never wait for it. ObserveRequest puts a request in a queue, or drops it if the queue is full. Run writes the queue in
// batches. A file that cannot be written is tried again after a while; until then requests are dropped. Memory and the size of the
// files are bounded, and every request that is missing in the recording is counted by reason.
package recorder

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

const (
	// queueLength is the number of requests that wait for the writer: four seconds at 1000 requests per second, and 10 MB with prompts of
	// 128 Ki tokens.
	queueLength = 4096
	// flushInterval is the longest time that a line is only in memory.
	flushInterval = time.Second
	// batchBytes is the size of a write.
	batchBytes = 64 << 10
	// retryInterval is the time after a failed write.
	retryInterval = 10 * time.Second
	// maxNumberedEndpoints limits the table of endpoint numbers, 1 MB. Beyond it the table starts again, and endpoints get new numbers.
	maxNumberedEndpoints = 10_000
)

// A Loss is the reason why a request is not in the recording. Its values are values of a metric's label.
type Loss string

// The reasons of losses.
const (
	LostBusy      Loss = "busy"      // the writer was too slow
	LostFile      Loss = "file"      // the file could not be written
	LostUnseen    Loss = "unseen"    // the gateway did not show the answer
	LostUncounted Loss = "uncounted" // the answer ended without a count of its tokens
	LostPrompt    Loss = "prompt"    // the request has no prompt, or one beyond the limits of the format
)

// Losses returns all reasons.
func Losses() []Loss { return []Loss{LostBusy, LostFile, LostUnseen, LostUncounted, LostPrompt} }

// observer counts requests.
type observer interface {
	RequestsRecorded(n int)
	RequestsLost(reason Loss, n int)
}

// Recorder writes the recording of all pools.
type Recorder struct {
	params    Params
	keys      *keys
	startTime time.Time
	queue     chan *queuedRequest

	// Used only by Run.
	files     files
	batch     []byte
	lines     int // in batch
	endpoints map[endpoint.Identity]int
	unknown   uint64 // parts of prompts so far that the picker did not read
	retryAt   time.Time
	failing   bool
}

// Params are the parameters of New.
type Params struct {
	Path     string
	MaxBytes int // of all files
	Log      *zap.Logger
	Observer observer
	Clock    clock.WithTicker
}

// New returns a Recorder. It opens no file until Run.
func New(p Params) *Recorder {
	return &Recorder{
		params: p, keys: newKeys(), startTime: p.Clock.Now(), queue: make(chan *queuedRequest, queueLength),
		files: files{path: p.Path, maxBytes: int64(p.MaxBytes), open: openFile}, endpoints: map[endpoint.Identity]int{},
	}
}

// A Pool observes the requests of one pool.
type Pool struct {
	recorder *Recorder
	name     string
}

// ForPool returns the observer of a pool. The name is in its lines; empty if there is only one pool.
func (r *Recorder) ForPool(name string) *Pool { return &Pool{recorder: r, name: name} }

// queuedRequest is a request in the queue. Its hashes are made when it is written.
type queuedRequest struct {
	RecordedRequest

	model    uint64 // hash of the name, without the key
	endpoint endpoint.Identity
	prefixes []uint64
}

// ObserveRequest queues a finished request that has an endpoint. It does not wait.
func (p *Pool) ObserveRequest(x *request.Record) {
	if x.Endpoint == nil {
		return
	}
	output, loss := outputTokens(x)
	if x.FixedTokens < 1 || x.FixedTokens > MaxTokens || output > MaxTokens {
		loss = LostPrompt
	}
	if loss != "" {
		p.recorder.params.Observer.RequestsLost(loss, 1)
		return
	}
	select {
	case p.recorder.queue <- p.newQueuedRequest(x, output):
	default:
		p.recorder.params.Observer.RequestsLost(LostBusy, 1)
	}
}

// outputTokens returns the tokens of an answer. An error counts as one, because readers of the format expect a token.
func outputTokens(x *request.Record) (tokens int, loss Loss) {
	switch {
	case x.Outcome != request.Completed && x.Outcome != request.Interrupted:
		return 0, LostUnseen
	case x.Status >= http.StatusBadRequest:
		return 1, ""
	case x.Usage.Known && x.Usage.Output > 0:
		return x.Usage.Output, ""
	case x.Streaming && x.ContentPieces > 0:
		return x.ContentPieces, "" // each is about one token
	}
	return 0, LostUncounted
}

// newQueuedRequest returns the line of a request. It refers to no memory that belongs to the request's body or headers.
func (p *Pool) newQueuedRequest(x *request.Record, output int) *queuedRequest {
	queued := &queuedRequest{model: xxhash.Sum64String(modelOf(x)), endpoint: x.Endpoint.Identity(), prefixes: x.Prefixes,
		RecordedRequest: RecordedRequest{
			Timestamp: new(sinceMilliseconds(p.recorder.startTime, x.ArrivalTime)), Input: x.FixedTokens, Output: output,
			Extension: Extension{
				Pool: p.name, Endpoints: x.PoolSize, Streaming: new(x.Streaming), Status: x.Status,
				Duration: new(sinceMilliseconds(x.DispatchTime(), x.EndTime)),
				Matched:  min(x.MatchedTokens*x.FixedTokens/max(x.PromptTokens, 1), x.FixedTokens),
			},
		}}
	if x.Streaming && !x.FirstContent.IsZero() {
		queued.TTFT = new(sinceMilliseconds(x.DispatchTime(), x.FirstContent))
	}
	if x.Usage.Known && x.Usage.Prompt > 0 && x.Usage.Prompt <= MaxTokens {
		queued.Prompt = x.Usage.Prompt
		if cached := x.Usage.Cached; x.Usage.CachedKnown && cached >= 0 && cached <= x.Usage.Prompt {
			queued.Cached = &cached
		}
	}
	return queued
}

// sinceMilliseconds returns the time from one moment to another, exact to a tenth of a millisecond.
func sinceMilliseconds(from, to time.Time) float64 {
	const tenths = 10
	return math.Round(tenths*float64(max(to.Sub(from), 0))/float64(time.Millisecond)) / tenths
}

// Run writes the recording until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	ticker := r.params.Clock.NewTicker(flushInterval)
	defer ticker.Stop()
	defer r.files.closeFile()
	if err := r.files.openNext(); err != nil {
		r.startPause(err)
	}
	for {
		select {
		case p := <-r.queue:
			r.addLine(p)
		case <-ticker.C():
			r.flushBatch()
		case <-ctx.Done():
			r.drainQueue()
			return
		}
	}
}

// drainQueue writes what is in the queue.
func (r *Recorder) drainQueue() {
	for {
		select {
		case p := <-r.queue:
			r.addLine(p)
		default:
			r.flushBatch()
			return
		}
	}
}

// addLine appends the line of a request to the batch, and writes the batch if it is full.
func (r *Recorder) addLine(p *queuedRequest) {
	if r.failing && r.params.Clock.Now().Before(r.retryAt) {
		r.params.Observer.RequestsLost(LostFile, 1)
		return
	}
	number := r.endpointNumber(p.endpoint)
	p.Model, p.Endpoint, p.Hashes = r.keys.hashValue(kindModel, p.model), &number, r.promptHashes(p)
	line, _ := json.Marshal(&p.RecordedRequest) // all its values can be written: numbers are finite
	r.batch = append(append(r.batch, line...), '\n')
	r.lines++
	if len(r.batch) >= batchBytes {
		r.flushBatch()
	}
}

// promptHashes returns the hashes of a prompt, one for each block.
func (r *Recorder) promptHashes(p *queuedRequest) []uint64 {
	hashes := make([]uint64, request.PrefixCount(p.Input))
	for i := range hashes {
		if i < len(p.prefixes) {
			hashes[i] = r.keys.hashValue(kindPrefix, p.prefixes[i])
			continue
		}
		r.unknown++
		hashes[i] = r.keys.hashValue(kindUnknown, r.unknown)
	}
	return hashes
}

// endpointNumber returns the number of an endpoint.
func (r *Recorder) endpointNumber(e endpoint.Identity) int {
	number, known := r.endpoints[e]
	if known {
		return number
	}
	if len(r.endpoints) >= maxNumberedEndpoints {
		clear(r.endpoints)
	}
	number = len(r.endpoints)
	r.endpoints[e] = number
	return number
}

// flushBatch writes the batch, or drops it.
func (r *Recorder) flushBatch() {
	if r.lines == 0 {
		return
	}
	err := r.files.appendLines(r.batch)
	n := r.lines
	r.batch, r.lines = r.batch[:0], 0
	if err != nil {
		r.params.Observer.RequestsLost(LostFile, n)
		r.startPause(err)
		return
	}
	r.params.Observer.RequestsRecorded(n)
	if r.failing {
		r.failing = false
		r.params.Log.Info("Resumed recording", zap.String("path", r.files.path))
	}
}

// startPause begins a pause. It logs the first error of an outage.
func (r *Recorder) startPause(err error) {
	if !r.failing {
		r.params.Log.Warn("Could not write the recording. Requests are served, but not recorded: free space, or make the file writable",
			zap.String("path", r.files.path), zap.Error(err))
	}
	r.failing, r.retryAt = true, r.params.Clock.Now().Add(retryInterval)
}

// modelOf returns the model that the server was asked for.
func modelOf(x *request.Record) string {
	if x.Target != "" {
		return x.Target
	}
	return x.Model
}
