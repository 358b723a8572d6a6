package metrics

import (
	"cmp"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// labels are the labels of the llm-d router's request metrics.
type labels struct {
	model, target, fairness string
	priority                int
}

func (l labels) labelValues() []string {
	return []string{l.model, l.target, l.fairness, strconv.Itoa(l.priority)}
}

// requests are the metrics of requests.
type requests struct {
	total, errors, rewrites                        *prometheus.CounterVec
	running                                        *prometheus.GaugeVec
	duration, requestSize, responseSize            *prometheus.HistogramVec
	input, output, cached                          *prometheus.HistogramVec
	perToken, firstToken, streamed                 *prometheus.HistogramVec
	gaps                                           *gapsVec
	queued                                         *prometheus.HistogramVec
	scheduler, processing, prefixRatio, prefixHits prometheus.Observer
	attempts                                       *attempts

	known    atomic.Pointer[map[labels]*series] // replaced, never changed
	mu       sync.Mutex                         // protects the following fields, and replacing known
	models   *limiter
	fairness *limiter
}

// series are the metrics of requests with the same labels.
type series struct {
	labels

	total                               prometheus.Counter
	running                             prometheus.Gauge
	duration, requestSize, responseSize prometheus.Observer
	input, output, cached               prometheus.Observer
	perToken, streamed                  prometheus.Observer
	gaps                                *gaps
	firstToken                          [2]lazy[prometheus.Observer] // for whole and for streamed answers
	errors                              [len(errorCodes)]lazy[prometheus.Counter]
	rewrite                             atomic.Pointer[rewrite] // the last rewrite with these labels
}

// rewrite counts the decisions of one InferenceModelRewrite.
type rewrite struct {
	name string
	prometheus.Counter
}

func newRequests(r prometheus.Registerer) *requests {
	theirs := upstreamMetrics(r)
	common := []string{labelModel, labelTarget, labelFairness, labelPriority}
	histograms := func(name, help string, buckets []float64, more ...string) *prometheus.HistogramVec {
		return theirs.newHistogramVec(name, help, buckets, append(common[:len(common):len(common)], more...)...)
	}
	q := &requests{
		total: theirs.newCounterVec("request_total", "Requests sent to an endpoint.", common...),
		errors: theirs.newCounterVec("request_error_total", "Requests that failed in the picker or at the model server.",
			append(common[:len(common):len(common)], labelErrorCode)...),
		rewrites: theirs.newCounterVec("model_rewrite_decisions_total", "Requests whose model an InferenceModelRewrite selected.",
			"model_rewrite_name", labelModel, "target_model"),
		running: theirs.newGaugeVec("request_running", "Unfinished requests with an endpoint.", common...),
		duration: histograms("request_duration_seconds", "Time from the start of a request to the end of its response.",
			latencyBuckets),
		requestSize:  histograms("request_size_bytes", "Size of request bodies.", requestSizeBuckets),
		responseSize: histograms("response_size_bytes", "Size of response bodies.", responseSizeBuckets),
		input:        histograms("request_input_tokens", "Tokens of the prompt, as reported by the model server.", tokenBuckets),
		output:       histograms("request_output_tokens", "Tokens of the answer, as reported by the model server.", outputBuckets),
		cached:       histograms("request_cached_tokens", "Cached tokens of the prompt, as reported by the model server.", tokenBuckets),
		perToken:     histograms("request_ntpot_seconds", "Duration of a request divided by the tokens of its answer.", perTokenBuckets),
		firstToken: histograms("request_ttft_seconds", "Time from the start of a request to the first content of its response.",
			firstTokenBuckets, labelStreaming),
		streamed: histograms("request_streaming_tpot_seconds", "Time per token of a streamed answer, after the first token.",
			streamedBuckets),
		gaps: &gapsVec{desc: upstreamDesc("request_streaming_itl_seconds",
			"Time between two chunks of a streamed answer, averaged per answer.", common...)},
		queued: histograms("flow_control_request_queue_duration_seconds", "Time that a request waited for an endpoint, by outcome.",
			latencyBuckets, labelOutcome),
		scheduler: theirs.newHistogram("scheduler_e2e_duration_seconds", "Time to choose an endpoint.", schedulerBuckets),
		processing: theirs.newHistogram("request_processing_duration_seconds",
			"Time from the start of a request to the choice of its endpoint, including the arrival of its body.", processingBuckets),
		prefixRatio: theirs.newHistogramVec("prefix_indexer_hit_ratio", "Expected share of a prompt in the cache of the picked endpoint.",
			hitRatioBuckets, labelPlugin, labelPluginType).WithLabelValues(prefixProducer, prefixProducer),
		prefixHits: theirs.newHistogramVec("prefix_indexer_hit_bytes",
			"Expected length of a prompt's prefix in the cache of the picked endpoint.",
			hitBytesBuckets, labelPlugin, labelPluginType).WithLabelValues(prefixProducer, prefixProducer),
		attempts: newAttempts(),
		models:   newLimiter(maxValues),
		fairness: newLimiter(maxValues),
	}
	q.known.Store(&map[labels]*series{})
	r.MustRegister(q.gaps)
	return q
}

// pinModels keeps the names of models as labels.
func (q *requests) pinModels(models []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range models {
		q.models.allowValue(m)
	}
}

// countPlaced counts a request with an endpoint that continues.
func (q *requests) countPlaced(r *request.Record) {
	s := q.seriesOf(r)
	s.running.Inc()
	q.observePick(s, r)
}

// observeRequest records a finished request.
func (q *requests) observeRequest(r *request.Record) {
	s := q.seriesOf(r)
	switch {
	case r.Placed:
		s.running.Dec()
	case r.Endpoint != nil:
		q.observePick(s, r)
	case r.Outcome == request.Refused && (r.Status == http.StatusServiceUnavailable || r.Status == http.StatusTooManyRequests):
		q.attempts.countAttempt(attempt{target: s.target})
	}
	if code := errorOf(r); code != noError {
		s.errors[code].loadOrCreate(func() prometheus.Counter {
			return q.errors.WithLabelValues(append(s.labelValues(), errorCodes[code].name)...)
		}).Inc()
	}
	if r.Queue != "" {
		q.queued.WithLabelValues(append(s.labelValues(), string(r.Queue))...).Observe(r.QueueTime.Seconds())
	}
	if r.Outcome == request.Completed {
		q.observeCompleted(s, r)
	}
}

// observePick records the information that is known at the time of the pick.
func (q *requests) observePick(s *series, r *request.Record) {
	s.total.Inc()
	s.requestSize.Observe(float64(r.RequestBytes))
	q.attempts.countAttempt(attempt{target: s.target, endpoint: r.Endpoint})
	q.scheduler.Observe(r.PickDuration.Seconds())
	if !r.ArrivalTime.IsZero() {
		q.processing.Observe((r.ArrivalTime.Sub(r.StartTime) + r.PickDuration).Seconds())
	}
	if r.PromptTokens > 0 {
		q.prefixRatio.Observe(float64(r.MatchedTokens) / float64(r.PromptTokens))
		q.prefixHits.Observe(float64(r.MatchedTokens * prefixindex.BytesPerToken))
	}
	if r.Rewrite != "" {
		s.rewriteCounter(q, r.Rewrite).Inc()
	}
}

// observeCompleted records a response that was observed to its end. It trusts the token counts of the server, and skips missing
// ones. It skips the durations of errors, which do not show the speed of tokens.
func (q *requests) observeCompleted(s *series, r *request.Record) {
	took := r.EndTime.Sub(r.StartTime)
	s.duration.Observe(took.Seconds())
	s.responseSize.Observe(float64(r.ResponseBytes))
	if r.Status >= http.StatusBadRequest {
		return
	}
	if !r.FirstContent.IsZero() {
		q.firstTokens(s, r.Streaming).Observe(r.FirstContent.Sub(r.StartTime).Seconds())
		if r.Streaming && r.ContentPieces > 1 {
			s.gaps.observeGaps(generationTime(r).Seconds(), r.ContentPieces-1)
		}
	}
	if r.Usage.Known {
		s.observeUsage(r, took)
	}
}

// observeUsage records the token counts from the model server.
func (s *series) observeUsage(r *request.Record, took time.Duration) {
	u := &r.Usage
	if u.Prompt > 0 {
		s.input.Observe(float64(u.Prompt))
	}
	if u.CachedKnown || u.Cached > 0 {
		s.cached.Observe(float64(u.Cached))
	}
	if u.Output <= 0 {
		return
	}
	s.output.Observe(float64(u.Output))
	s.perToken.Observe(took.Seconds() / float64(u.Output))
	if r.Streaming && u.Output > 1 && !r.FirstContent.IsZero() {
		s.streamed.Observe(generationTime(r).Seconds() / float64(u.Output-1))
	}
}

// generationTime returns the time from the first content of an answer to the last one.
func generationTime(r *request.Record) time.Duration {
	if r.LastContent.IsZero() {
		return r.EndTime.Sub(r.FirstContent)
	}
	return r.LastContent.Sub(r.FirstContent)
}

func (q *requests) firstTokens(s *series, streaming bool) prometheus.Observer { //nolint:revive // what happened, not what to do
	at := 0
	if streaming {
		at = 1
	}
	return s.firstToken[at].loadOrCreate(func() prometheus.Observer {
		return q.firstToken.WithLabelValues(append(s.labelValues(), strconv.FormatBool(streaming))...)
	})
}

// rewriteCounter returns the counter of an InferenceModelRewrite. Two rewrites rarely lead to the same labels.
func (s *series) rewriteCounter(q *requests, name string) prometheus.Counter {
	if last := s.rewrite.Load(); last != nil && last.name == name {
		return last.Counter
	}
	name = strings.Clone(name)
	_, short, found := strings.Cut(name, "/")
	if !found {
		short = name
	}
	created := &rewrite{name: name, Counter: q.rewrites.WithLabelValues(toPrintable(short), s.model, s.target)}
	s.rewrite.Store(created)
	return created.Counter
}

// seriesOf returns the metrics for a request.
func (q *requests) seriesOf(r *request.Record) *series {
	l := labels{model: r.Model, target: cmp.Or(r.Target, r.Model), fairness: cmp.Or(r.Fairness, defaultFairness), priority: r.Priority}
	if s := (*q.known.Load())[l]; s != nil {
		return s
	}
	return q.boundedSeries(l)
}

// boundedSeries is seriesOf for labels that are new, or exceed limits.
func (q *requests) boundedSeries(l labels) *series {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.model, l.target, l.fairness = q.models.boundLabel(l.model), q.models.boundLabel(l.target), q.fairness.boundLabel(l.fairness)
	known := *q.known.Load()
	if s := known[l]; s != nil {
		return s
	}
	if len(known) >= maxSeries {
		l.model, l.target, l.fairness = q.foldedModel(l.model), q.foldedModel(l.target), otherName
		if s := known[l]; s != nil {
			return s
		}
	}
	s := q.newSeries(l)
	grown := maps.Clone(known)
	grown[l] = s
	q.known.Store(&grown)
	return s
}

// foldedModel returns the label for a model when there are too many sets of labels.
func (q *requests) foldedModel(model string) string {
	if _, known := q.models.pinned[model]; known || model == "" {
		return model
	}
	return otherName
}

func (q *requests) newSeries(l labels) *series {
	v := l.labelValues()
	return &series{
		labels:       l,
		total:        q.total.WithLabelValues(v...),
		running:      q.running.WithLabelValues(v...),
		duration:     q.duration.WithLabelValues(v...),
		requestSize:  q.requestSize.WithLabelValues(v...),
		responseSize: q.responseSize.WithLabelValues(v...),
		input:        q.input.WithLabelValues(v...),
		output:       q.output.WithLabelValues(v...),
		cached:       q.cached.WithLabelValues(v...),
		perToken:     q.perToken.WithLabelValues(v...),
		streamed:     q.streamed.WithLabelValues(v...),
		gaps:         q.gaps.withLabels(v),
	}
}
