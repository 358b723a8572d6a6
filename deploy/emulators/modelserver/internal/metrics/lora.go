package metrics

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
)

// maxLoRASeries is the maximum number of label sets on a page.
const maxLoRASeries = 32

// loraHistory is vllm:lora_requests_info. The labels are the adapters in use, and the value is the last time at which they were in
// use. As in vLLM, old label sets stay on the page, and readers must use the newest.
type loraHistory struct {
	maxLoRAs string
	series   []loraSeries // in the order of their first appearance
}

type loraSeries struct {
	prefix string
	at     float64
}

func newLoRAHistory(maxLoRAs int) *loraHistory {
	return &loraHistory{maxLoRAs: strconv.Itoa(maxLoRAs)}
}

func (l *loraHistory) append(dst []byte, s *engine.Stats, now time.Time) []byte {
	const name = "vllm:lora_requests_info"
	prefix := series(name, label{"max_lora", l.maxLoRAs},
		label{"running_lora_adapters", strings.Join(s.RunningAdapters, ",")},
		label{"waiting_lora_adapters", strings.Join(s.WaitingAdapters, ",")})
	l.touch(prefix, float64(now.UnixMicro())/1e6)
	dst = append(dst, header(name, "gauge", "Running stats on lora requests.")...)
	for _, series := range l.series {
		dst = appendSample(dst, series.prefix, series.at)
	}
	return dst
}

func (l *loraHistory) touch(prefix string, at float64) {
	if i := slices.IndexFunc(l.series, func(s loraSeries) bool { return s.prefix == prefix }); i >= 0 {
		l.series[i].at = at
		return
	}
	if len(l.series) == maxLoRASeries {
		oldest := 0
		for i, s := range l.series {
			if s.at < l.series[oldest].at {
				oldest = i
			}
		}
		l.series = slices.Delete(l.series, oldest, oldest+1)
	}
	l.series = append(l.series, loraSeries{prefix, at})
}
