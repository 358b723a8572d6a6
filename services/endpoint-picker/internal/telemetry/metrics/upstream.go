package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/request"
)

// upstream is the prefix of the llm-d router's names. Names, labels and buckets of this set are those of August 2026,
// oddities included, because existing queries use them.
const upstream = "llm_d_epp"

// Labels of the llm-d router.
const (
	labelModel      = "model_name"
	labelTarget     = "target_model_name"
	labelFairness   = "fairness_id"
	labelPriority   = "priority"
	labelStreaming  = "streaming"
	labelErrorCode  = "error_code"
	labelOutcome    = "outcome"
	labelPool       = "name"
	labelEndpoint   = "endpoint_name"
	labelNamespace  = "namespace"
	labelPort       = "port"
	labelStatus     = "status"
	labelPlugin     = "plugin_name"
	labelPluginType = "plugin_type"
)

// Values of its labels for parts that are plugins there, but not here.
const (
	sourceMetrics   = "metrics-data-source"
	prefixProducer  = "approx-prefix-cache-producer"
	loadProducer    = "inflight-load-producer"
	defaultFairness = "default-flow"
	statusSuccess   = "success"
	statusFailure   = "failure"
	stageEffective  = "effective"
)

var (
	latencyBuckets = []float64{
		0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 120,
		180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
	}
	firstTokenBuckets   = latencyBuckets[:24] // to two minutes
	requestSizeBuckets  = prometheus.ExponentialBuckets(64, 2, 25)
	responseSizeBuckets = []float64{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32778, 65536}
	tokenBuckets        = append(responseSizeBuckets[:len(responseSizeBuckets):len(responseSizeBuckets)], 131072, 262144, 524288, 1048576)
	outputBuckets       = responseSizeBuckets[:12]
	perTokenBuckets     = []float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}
	streamedBuckets     = []float64{
		0.0005, 0.00205, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 2,
	}
	gapBuckets        = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2}
	schedulerBuckets  = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1}
	processingBuckets = []float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}
	hitRatioBuckets   = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
	hitBytesBuckets   = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536}
	streamBuckets     = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600}
)

// extProc are the metrics of streams.
type extProc struct {
	inFlight prometheus.Gauge
	duration prometheus.Observer
	vec      *prometheus.CounterVec
	total    [17]lazy[prometheus.Counter] // by gRPC's codes
}

func newExtProc(r prometheus.Registerer) *extProc {
	theirs := upstreamMetrics(r)
	return &extProc{
		inFlight: theirs.newGauge("extproc_streams_inflight", "Open ext_proc streams."),
		duration: theirs.newHistogram("extproc_stream_duration_seconds", "Duration of an ext_proc stream.", streamBuckets),
		vec:      theirs.newCounterVec("extproc_streams_total", "Finished ext_proc streams, by gRPC status code.", "code"),
	}
}

func (e *extProc) observeEnd(r *request.Record) {
	e.inFlight.Dec()
	e.duration.Observe(r.EndTime.Sub(r.StartTime).Seconds())
	if int(r.Code) < len(e.total) {
		e.total[r.Code].loadOrCreate(func() prometheus.Counter { return e.vec.WithLabelValues(r.Code.String()) }).Inc()
	}
}

func upstreamDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(upstream, "", name), help, labels, nil)
}
