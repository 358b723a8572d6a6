package engine

import (
	"slices"
	"sort"
)

// Stats are the values that the engine counts, with the names of vLLM's metrics. Durations are in seconds of engine time.
type Stats struct {
	Gauges
	Blocks int

	PromptTokens, GenerationTokens      uint64
	CachedPromptTokens                  uint64 // of PromptTokens
	PrefixCacheQueries, PrefixCacheHits uint64 // tokens
	Preemptions, Steps                  uint64
	Finished                            map[FinishReason]uint64

	IterationTokens                             Histogram
	TimeToFirstToken, InterTokenLatency         Histogram
	TimePerOutputToken                          Histogram
	E2ELatency, QueueTime, InferenceTime        Histogram
	PrefillTime, DecodeTime                     Histogram
	RequestPromptTokens, RequestComputedTokens  Histogram
	RequestGenerationTokens, RequestMaxGenerate Histogram
	RequestN, RequestMaxTokens                  Histogram
	RequestPreemptions                          Histogram
}

// Gauges are the state of the scheduler at one time.
type Gauges struct {
	Running, Waiting                 int
	RunningAdapters, WaitingAdapters []string // sorted
	Deferred                         int      // waiting requests whose adapter has no place
	BlocksUsed                       int      // of the KV cache
}

// Histogram counts values up to each bound. Counts has one more element than Bounds, for the values above the last bound.
type Histogram struct {
	Bounds []float64
	Counts []uint64
	Sum    float64
}

// Bucket bounds of vLLM 0.32.
var (
	requestLatencyBounds = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
	firstTokenBounds     = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
		160, 640, 2560}
	outputTokenBounds    = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	iterationTokenBounds = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384}
	choiceBounds         = []float64{1, 2, 5, 10, 20}
	preemptionBounds     = []float64{1, 2, 3, 4, 5, 10, 20}
)

func newStats(s Spec) Stats {
	lengths := lengthBounds(s.MaxModelLen)
	return Stats{
		Blocks:                  s.NumBlocks,
		Finished:                make(map[FinishReason]uint64),
		IterationTokens:         NewHistogram(iterationTokenBounds),
		TimeToFirstToken:        NewHistogram(firstTokenBounds),
		InterTokenLatency:       NewHistogram(outputTokenBounds),
		TimePerOutputToken:      NewHistogram(outputTokenBounds),
		E2ELatency:              NewHistogram(requestLatencyBounds),
		QueueTime:               NewHistogram(requestLatencyBounds),
		InferenceTime:           NewHistogram(requestLatencyBounds),
		PrefillTime:             NewHistogram(requestLatencyBounds),
		DecodeTime:              NewHistogram(requestLatencyBounds),
		RequestPromptTokens:     NewHistogram(lengths),
		RequestComputedTokens:   NewHistogram(lengths),
		RequestGenerationTokens: NewHistogram(lengths),
		RequestMaxGenerate:      NewHistogram(lengths),
		RequestN:                NewHistogram(choiceBounds),
		RequestMaxTokens:        NewHistogram(lengths),
		RequestPreemptions:      NewHistogram(preemptionBounds),
	}
}

// lengthBounds returns 1, 2, 5, 10, 20, 50 and so on up to limit.
func lengthBounds(limit int) []float64 {
	var bounds []float64
	for scale := 1; ; scale *= 10 {
		for _, m := range []int{1, 2, 5} {
			if m*scale > limit {
				return bounds
			}
			bounds = append(bounds, float64(m*scale))
		}
	}
}

// NewHistogram returns an empty histogram. The bounds must be ascending.
func NewHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Count returns the number of observed values.
func (h *Histogram) Count() uint64 {
	total := uint64(0)
	for _, n := range h.Counts {
		total += n
	}
	return total
}

// Observe counts a value.
func (h *Histogram) Observe(v float64) {
	h.Counts[sort.SearchFloat64s(h.Bounds, v)]++
	h.Sum += v
}

func (h *Histogram) clone() Histogram {
	return Histogram{Bounds: h.Bounds, Counts: slices.Clone(h.Counts), Sum: h.Sum}
}

func (s *Stats) histograms() []*Histogram {
	return []*Histogram{
		&s.IterationTokens, &s.TimeToFirstToken, &s.InterTokenLatency, &s.TimePerOutputToken, &s.E2ELatency, &s.QueueTime,
		&s.InferenceTime, &s.PrefillTime, &s.DecodeTime, &s.RequestPromptTokens, &s.RequestComputedTokens,
		&s.RequestGenerationTokens, &s.RequestMaxGenerate, &s.RequestN, &s.RequestMaxTokens, &s.RequestPreemptions,
	}
}

// observeEnd records a completed request.
func (s *Stats) observeEnd(r *Request) {
	first, last := r.tokenTimes[0], r.tokenTimes[len(r.tokenTimes)-1]
	queued := r.started - r.arrived
	s.E2ELatency.Observe(last.Seconds())
	s.QueueTime.Observe(queued.Seconds())
	s.InferenceTime.Observe((last - queued).Seconds())
	s.PrefillTime.Observe((first - queued).Seconds())
	s.DecodeTime.Observe((last - first).Seconds())
	if r.made > 1 {
		s.TimePerOutputToken.Observe((last - first).Seconds() / float64(r.made-1))
	}
	s.RequestPromptTokens.Observe(float64(len(r.Prompt)))
	s.RequestComputedTokens.Observe(float64(len(r.Prompt) - r.cached))
	s.RequestGenerationTokens.Observe(float64(r.made))
	s.RequestMaxGenerate.Observe(float64(r.made))
	s.RequestN.Observe(float64(r.Choices))
	s.RequestPreemptions.Observe(float64(r.preemptions))
	if r.MaxTokens > 0 {
		s.RequestMaxTokens.Observe(float64(r.MaxTokens))
	}
}
