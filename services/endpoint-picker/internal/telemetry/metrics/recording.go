package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/telemetry/recorder"
)

// Recording counts the requests in the recording and those that are missing there.
type Recording struct {
	written prometheus.Counter
	lost    map[recorder.Loss]prometheus.Counter
}

// NewRecording creates and registers the counters, for pickers that record.
func NewRecording(r prometheus.Registerer) *Recording {
	own := ownMetrics(r)
	return &Recording{
		written: own.newCounter("recording_requests_total", "Requests that were written to the recording."),
		lost: newCounters(own, "recording_lost_requests_total", "Picked requests that are missing in the recording, by reason.", "reason",
			recorder.Losses()...),
	}
}

// RequestsRecorded counts requests that were written.
func (v *Recording) RequestsRecorded(n int) { v.written.Add(float64(n)) }

// RequestsLost counts requests that are missing.
func (v *Recording) RequestsLost(reason recorder.Loss, n int) { v.lost[reason].Add(float64(n)) }
