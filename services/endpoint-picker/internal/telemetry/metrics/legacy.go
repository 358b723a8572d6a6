package metrics

import (
	"cmp"
	_ "embed"
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
)

// olderMetric is the older name of a metric.
type olderMetric struct {
	name   string
	labels map[string]string // current labels to older ones; others did not exist
}

//go:embed legacy.txt
var legacyText string

// olderNames contains all older names, by the current names without prefix.
var olderNames = parseOlderNames(legacyText)

// parseOlderNames reads a line for each metric: its current name without prefix, its older name, and the labels that it had. A label that
// was called otherwise is current=older.
func parseOlderNames(text string) map[string]olderMetric {
	names := map[string]olderMetric{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		older := olderMetric{name: words[1], labels: map[string]string{}}
		for _, label := range words[2:] {
			current, name, _ := strings.Cut(label, "=")
			older.labels[current] = cmp.Or(name, current)
		}
		names[words[0]] = older
	}
	return names
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
