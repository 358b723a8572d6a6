package pool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

const (
	// HoldsPattern is the pattern of a HoldsHandler.
	HoldsPattern = "GET /v1/holds"

	// holdsInterval is the time between two looks at the pools.
	holdsInterval = 25 * time.Millisecond
	// heartbeat is the time between two empty lines.
	heartbeat = 15 * time.Second
	// maxFollowers is half of what the listener serves at the same time, so that scrapes have a place.
	maxFollowers = 4
	// maxLine bounds a line in bytes, because clients choose the names of models. Models that most requests wait for come first.
	maxLine = 512 << 10
)

// A NamedQueue is the queue of one pool.
type NamedQueue struct {
	Namespace string // empty without an InferencePool
	Name      string
	Queue     *Queue
}

// A HoldsHandler serves GET /v1/holds: a stream of the requests that wait for an endpoint, for autoscalers that wake a model when the first
// one waits. It is a series of JSON objects, one in each line:
//
//	{"namespace":"ns","pool":"name","models":[{"model":"m","waiting":3,"oldestSeconds":1.25}]}
//
// Each line is the whole state of a pool at that moment: models that requests wait for, and with waiting 0 those that a request waited for
// during the last minute. The stream begins with a line for each pool, and goes on with a line for each pool that changed. A pool that is
// gone has no models. An empty line says that the stream is alive.
type HoldsHandler struct {
	queues    func() []NamedQueue
	clock     clock.PassiveClock
	followers atomic.Int32
}

// NewHoldsHandler returns a HoldsHandler. The function returns the queues of the moment.
func NewHoldsHandler(queues func() []NamedQueue, c clock.PassiveClock) *HoldsHandler {
	return &HoldsHandler{queues: queues, clock: c}
}

// ServeHTTP serves the stream until the client leaves or the server ends.
func (h *HoldsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.followers.Add(-1)
	if h.followers.Add(1) > maxFollowers {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many clients follow the waiting requests: end one of them", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	defer context.AfterFunc(r.Context(), func() { _ = control.SetWriteDeadline(time.Now()) })() // it may not read
	s := holdsStream{handler: h, known: map[poolName]queueState{}}
	next := time.NewTicker(holdsInterval)
	defer next.Stop()
	for first := true; ; first = false {
		if lines := s.changedLines(); len(lines) > 0 || first {
			if writeLines(w, control, lines) != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-next.C:
		}
	}
}

// writeLines sends lines to a client that reads them.
func writeLines(w io.Writer, control *http.ResponseController, lines []byte) error {
	if err := control.SetWriteDeadline(time.Now().Add(heartbeat)); err != nil {
		return err
	}
	if _, err := w.Write(lines); err != nil {
		return err
	}
	return control.Flush()
}

// holdsStream is what a follower has read.
type holdsStream struct {
	handler *HoldsHandler
	known   map[poolName]queueState
	last    time.Time // of the last line
}

type poolName struct{ namespace, pool string }

// queueState is that of a queue when its line was written.
type queueState struct {
	queue   *Queue
	version uint64
}

// changedLines returns what the follower does not know.
func (s *holdsStream) changedLines() []byte {
	var b bytes.Buffer
	now, gone := s.handler.clock.Now(), maps.Clone(s.known)
	for _, p := range s.handler.queues() {
		key := poolName{p.Namespace, p.Name}
		delete(gone, key)
		seen := queueState{queue: p.Queue, version: p.Queue.version.Load()}
		if known, found := s.known[key]; !found || known != seen {
			s.known[key] = seen
			b.Write(formatLine(key, sumModels(p.Queue.Report(), now)))
		}
	}
	for key := range gone {
		delete(s.known, key)
		b.Write(formatLine(key, nil))
	}
	if b.Len() == 0 && now.Sub(s.last) >= heartbeat {
		b.WriteByte('\n')
	}
	if b.Len() > 0 {
		s.last = now
	}
	return b.Bytes()
}

// waitingModel is the waiting requests of a model.
type waitingModel struct {
	Model   string  `json:"model"`
	Waiting int     `json:"waiting"`
	Oldest  float64 `json:"oldestSeconds"`
}

// sumModels adds the counts of each model.
func sumModels(counts []QueueCount, now time.Time) []waitingModel {
	models := make([]waitingModel, 0, len(counts))
	for i := range counts { // sorted by target
		c := &counts[i]
		if n := len(models); n == 0 || models[n-1].Model != c.Target {
			models = append(models, waitingModel{Model: c.Target})
		}
		m := &models[len(models)-1]
		if m.Waiting += c.Requests; c.Requests > 0 {
			m.Oldest = max(m.Oldest, now.Sub(c.Oldest).Seconds())
		}
	}
	return models
}

// formatLine returns a line. Models beyond maxLine are left out.
func formatLine(pool poolName, all []waitingModel) []byte {
	slices.SortStableFunc(all, func(a, b waitingModel) int { return cmp.Compare(b.Waiting, a.Waiting) })
	size := 0
	for i := range all {
		const escaped, rest = 6, 64 // bytes of a byte in JSON at most, and of the rest of an object
		if size += escaped*len(all[i].Model) + rest; size > maxLine {
			all = all[:i]
			break
		}
	}
	slices.SortFunc(all, func(a, b waitingModel) int { return cmp.Compare(a.Model, b.Model) })
	text, _ := json.Marshal(struct { // these types have a form in JSON
		Namespace string         `json:"namespace"`
		Pool      string         `json:"pool"`
		Models    []waitingModel `json:"models"`
	}{pool.namespace, pool.pool, append([]waitingModel{}, all...)})
	return append(text, '\n')
}
