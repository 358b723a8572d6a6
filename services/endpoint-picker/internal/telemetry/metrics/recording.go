package metrics

import "github.com/prometheus/client_golang/prometheus"

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

// Recording counts the requests in the recording and those that are missing there.
type Recording struct {
	written prometheus.Counter
	lost    map[Loss]prometheus.Counter
}

// NewRecording creates and registers the counters, for pickers that record.
func NewRecording(r prometheus.Registerer) *Recording {
	v := &Recording{
		written: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "recording_requests_total", Help: "Requests that were written to the recording.",
		}),
		lost: map[Loss]prometheus.Counter{},
	}
	lost := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "recording_lost_requests_total", Help: "Picked requests that are missing in the recording, by reason.",
	}, []string{"reason"})
	for _, reason := range Losses() {
		v.lost[reason] = lost.WithLabelValues(string(reason))
	}
	r.MustRegister(v.written, lost)
	return v
}

// RequestsRecorded counts requests that were written.
func (v *Recording) RequestsRecorded(n int) { v.written.Add(float64(n)) }

// RequestsLost counts requests that are missing.
func (v *Recording) RequestsLost(reason Loss, n int) { v.lost[reason].Add(float64(n)) }
