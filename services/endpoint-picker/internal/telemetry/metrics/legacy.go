package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// Prefixes of the llm-d router's older names.
const (
	objectivePrefix = "inference_objective_"
	modelPrefix     = "inference_model_" // until the Inference Extension 1.0
	poolPrefix      = "inference_pool_"
	extensionPrefix = "inference_extension_"
	schedulerPrefix = "llm_d_inference_scheduler_"
)

// olderMetric is the older name of a metric.
type olderMetric struct {
	name   string
	labels map[string]string // current labels to older ones; others did not exist
}

func identityLabels(labels ...string) map[string]string {
	m := make(map[string]string, len(labels))
	for _, l := range labels {
		m[l] = l
	}
	return m
}

// olderNames contains all older names, by the current names without prefix.
var olderNames = map[string]olderMetric{
	"request_total":                  {objectivePrefix + "request_total", identityLabels(labelModel, labelTarget, labelPriority)},
	"request_error_total":            {objectivePrefix + "request_error_total", identityLabels(labelModel, labelTarget, labelErrorCode)},
	"request_duration_seconds":       {objectivePrefix + "request_duration_seconds", identityLabels(labelModel, labelTarget)},
	"request_size_bytes":             {objectivePrefix + "request_sizes", identityLabels(labelModel, labelTarget)},
	"response_size_bytes":            {objectivePrefix + "response_sizes", identityLabels(labelModel, labelTarget)},
	"request_input_tokens":           {objectivePrefix + "input_tokens", identityLabels(labelModel, labelTarget)},
	"request_output_tokens":          {objectivePrefix + "output_tokens", identityLabels(labelModel, labelTarget)},
	"request_cached_tokens":          {objectivePrefix + "prompt_cached_tokens", identityLabels(labelModel, labelTarget)},
	"request_running":                {objectivePrefix + "running_requests", identityLabels(labelModel)},
	"request_ttft_seconds":           {objectivePrefix + "request_ttft_seconds", identityLabels(labelModel, labelTarget)},
	"request_streaming_tpot_seconds": {objectivePrefix + "request_tpot_seconds", identityLabels(labelModel, labelTarget)},
	"request_ntpot_seconds": {objectivePrefix + "normalized_time_per_output_token_seconds",
		identityLabels(labelModel, labelTarget)},

	"average_kv_cache_utilization": {poolPrefix + "average_kv_cache_utilization", identityLabels(labelPool)},
	"average_queue_size":           {poolPrefix + "average_queue_size", identityLabels(labelPool)},
	"average_running_requests":     {poolPrefix + "average_running_requests", identityLabels(labelPool)},
	"ready_endpoints":              {poolPrefix + "ready_pods", identityLabels(labelPool)},
	"per_endpoint_queue_size": {poolPrefix + "per_pod_queue_size",
		map[string]string{labelPool: labelPool, "model_server_endpoint": "model_server_pod"}},

	"scheduler_e2e_duration_seconds": {extensionPrefix + "scheduler_e2e_duration_seconds", nil},
	"scheduler_attempts_total": {extensionPrefix + "scheduler_attempts_total", map[string]string{
		labelStatus: labelStatus, labelTarget: labelTarget, labelEndpoint: "pod_name", labelNamespace: labelNamespace, labelPort: labelPort,
	}},
	"info": {extensionPrefix + "info", identityLabels("commit", "build_ref")},
	"model_rewrite_decisions_total": {extensionPrefix + "model_rewrite_decisions_total", identityLabels("model_rewrite_name", labelModel,
		"target_model")},
	"prefix_indexer_size":          {extensionPrefix + "prefix_indexer_size", nil},
	"prefix_indexer_hit_ratio":     {extensionPrefix + "prefix_indexer_hit_ratio", nil},
	"prefix_indexer_hit_bytes":     {extensionPrefix + "prefix_indexer_hit_bytes", nil},
	"flow_control_pool_saturation": {extensionPrefix + "flow_control_pool_saturation", identityLabels("inference_pool", "stage")},
	"flow_control_queue_size": {extensionPrefix + "flow_control_queue_size", identityLabels(labelFairness, labelPriority,
		"inference_pool", labelModel, labelTarget)},
	"flow_control_queue_bytes": {extensionPrefix + "flow_control_queue_bytes", identityLabels(labelFairness, labelPriority,
		"inference_pool", labelModel, labelTarget)},
	"flow_control_request_queue_duration_seconds": {extensionPrefix + "flow_control_request_queue_duration_seconds",
		identityLabels(labelFairness, labelPriority, labelOutcome, "inference_pool", labelModel, labelTarget)},

	"datalayer_poll_errors_total": {schedulerPrefix + "datalayer_poll_errors_total", identityLabels("source_type")},
}

// LegacyNames returns a gatherer that adds the llm_d_epp_* metrics of g under their older names, with the older labels: it
// sums series that these do not distinguish. Nothing is measured twice.
func LegacyNames(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather() // an error may come with a partial result
		all := slices.Clone(families)
		for _, f := range families {
			name, found := strings.CutPrefix(f.GetName(), upstream+"_")
			o, known := olderNames[name]
			if !found || !known {
				continue
			}
			all = append(all, o.convertFamily(f))
			if o, known := o.withoutPriority(); known {
				all = append(all, o.convertFamily(f))
			}
		}
		slices.SortFunc(all, func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
		return all, err
	})
}

// withoutPriority returns the name of a metric of the Inference Extension 1.0, which had no priority. Newer metrics had none.
func (o olderMetric) withoutPriority() (olderMetric, bool) {
	name, objective := strings.CutPrefix(o.name, objectivePrefix)
	if !objective || slices.Contains([]string{"request_ttft_seconds", "request_tpot_seconds", "prompt_cached_tokens"}, name) {
		return olderMetric{}, false
	}
	labels := maps.Clone(o.labels)
	delete(labels, labelPriority)
	return olderMetric{modelPrefix + name, labels}, true
}

// convertFamily returns a metric under its older name.
func (o olderMetric) convertFamily(f *dto.MetricFamily) *dto.MetricFamily {
	converted := &dto.MetricFamily{Name: proto.String(o.name), Help: proto.String("Deprecated: use " + f.GetName() + "."), Type: f.Type}
	places := map[string]*dto.Metric{}
	for _, m := range f.GetMetric() {
		labels, key := o.convertLabels(m.GetLabel())
		place := places[key]
		if place == nil {
			place = &dto.Metric{Label: labels}
			places[key] = place
			converted.Metric = append(converted.Metric, place)
		}
		addMetric(place, m)
	}
	return converted
}

// convertLabels returns the older labels, sorted, and a string key for them.
func (o olderMetric) convertLabels(labels []*dto.LabelPair) (converted []*dto.LabelPair, key string) {
	for _, l := range labels {
		if name, kept := o.labels[l.GetName()]; kept {
			converted = append(converted, &dto.LabelPair{Name: proto.String(name), Value: l.Value})
		}
	}
	slices.SortFunc(converted, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
	var b strings.Builder
	for _, l := range converted {
		b.WriteString(l.GetValue())
		b.WriteByte(0xff) // never part of valid UTF-8
	}
	return converted, b.String()
}

// addMetric adds one metric to another of the same kind.
func addMetric(to, m *dto.Metric) {
	switch {
	case m.Counter != nil:
		to.Counter = &dto.Counter{Value: proto.Float64(to.GetCounter().GetValue() + m.GetCounter().GetValue())}
	case m.Gauge != nil:
		to.Gauge = &dto.Gauge{Value: proto.Float64(to.GetGauge().GetValue() + m.GetGauge().GetValue())}
	case m.Histogram != nil:
		to.Histogram = addHistograms(to.Histogram, m.GetHistogram())
	}
}

// addHistograms adds two histograms with the same buckets. The first may be nil.
func addHistograms(a, b *dto.Histogram) *dto.Histogram {
	sum := &dto.Histogram{
		SampleCount: proto.Uint64(a.GetSampleCount() + b.GetSampleCount()),
		SampleSum:   proto.Float64(a.GetSampleSum() + b.GetSampleSum()),
	}
	for i, bucket := range b.GetBucket() {
		count := bucket.GetCumulativeCount()
		if a != nil {
			count += a.GetBucket()[i].GetCumulativeCount()
		}
		sum.Bucket = append(sum.Bucket, &dto.Bucket{UpperBound: bucket.UpperBound, CumulativeCount: proto.Uint64(count)})
	}
	return sum
}
