package metrics

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// gapsVec is a histogram of the gaps between the pieces of answers. Of an answer only the mean gap is known, and how many
// there were: it is counted so many times, at once. So count and sum are those of all gaps; the buckets tell answers apart,
// not the gaps of one.
type gapsVec struct {
	desc *prometheus.Desc

	mu       sync.Mutex
	children []*gaps
}

// gaps are those of one set of labels.
type gaps struct {
	labels []string
	counts []atomic.Uint64 // of each bucket, the last has no bound
	sum    atomic.Uint64   // bits of a float
}

// with returns the gaps of a set of labels that has none yet.
func (v *gapsVec) with(labels []string) *gaps {
	v.mu.Lock()
	defer v.mu.Unlock()
	g := &gaps{labels: labels, counts: make([]atomic.Uint64, len(gapBuckets)+1)}
	v.children = append(v.children, g)
	return g
}

// observe counts n gaps that together took so many seconds.
func (g *gaps) observe(seconds float64, n int) {
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
