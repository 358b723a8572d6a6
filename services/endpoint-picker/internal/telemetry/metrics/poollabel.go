package metrics

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// labelOfPool is the label with the pool of a metric.
const labelOfPool = "pool"

// Prefixes of the names of metrics for WithPool.
const (
	OwnMetrics = namespace + "_"
	AllMetrics = ""
)

// WithPool returns a gatherer that adds a label with the pool to the metrics of g whose names have the prefix. OwnMetrics
// leaves the labels of the llm-d router's metrics as its users know them; with several pools, these need the label too.
func WithPool(g prometheus.Gatherer, pool, prefix string) prometheus.Gatherer {
	label := &dto.LabelPair{Name: proto.String(labelOfPool), Value: proto.String(pool)}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := g.Gather() // an error may come with a partial result
		for _, f := range families {
			if !strings.HasPrefix(f.GetName(), prefix) {
				continue
			}
			for _, m := range f.GetMetric() {
				m.Label = append(slices.Clip(m.GetLabel()), label) // the labels belong to the collector
				slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
			}
		}
		return families, err
	})
}
