package metrics

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// gapsVec is a histogram of the gaps between the pieces of answers. Only the mean gap and the number of gaps of an answer
// are known, so all its gaps are counted with the mean, at once. Count and sum are exact for all gaps; the buckets
// distinguish answers, not the gaps of one answer.
type gapsVec struct {
	desc *prometheus.Desc

	mu       sync.Mutex
	children []*gaps
}

// gaps is the histogram for one set of labels.
type gaps struct {
	labels []string
	counts []atomic.Uint64 // by bucket; the last has no bound
	sum    atomic.Uint64   // bits of a float
}

// withLabels returns the histogram for a new set of labels.
func (v *gapsVec) withLabels(labels []string) *gaps {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := &gaps{labels: labels, counts: make([]atomic.Uint64, len(gapBuckets)+1)}
	v.children = append(v.children, g)
	return g
}

// observeGaps counts n gaps with a total duration in seconds.
func (g *gaps) observeGaps(seconds float64, n int) {
	mean := seconds / float64(n)
	at, _ := slices.BinarySearch(gapBuckets, mean)
	g.counts[at].Add(uint64(n))
	for {
		old := g.sum.Load()
		if g.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+seconds)) {
			return
		}
	}
}

// Describe implements prometheus.Collector.
func (v *gapsVec) Describe(out chan<- *prometheus.Desc) { out <- v.desc }

// Collect implements prometheus.Collector.
func (v *gapsVec) Collect(out chan<- prometheus.Metric) {
	v.mu.Lock()
	children := slices.Clone(v.children)
	v.mu.Unlock()
	for _, g := range children {
		sum, count := math.Float64frombits(g.sum.Load()), uint64(0)
		buckets := make(map[float64]uint64, len(gapBuckets))
		for i := range g.counts {
			count += g.counts[i].Load()
			if i < len(gapBuckets) {
				buckets[gapBuckets[i]] = count
			}
		}
		out <- prometheus.MustNewConstHistogram(v.desc, count, sum, buckets, g.labels...)
	}
}
