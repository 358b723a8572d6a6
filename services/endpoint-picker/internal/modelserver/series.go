package modelserver

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
)

// maxSeries limits the needed series of a page. The largest real pages have a few hundred: a series for each rank and priority. It takes up
// to 300 KiB for an endpoint.
const maxSeries = 4096

// errManySeries means that a page has too many series of the needed metrics.
var errManySeries = fmt.Errorf("over %d series of the needed metrics: give the server fewer ranks and priorities, "+
	"or select series by their labels in engineConfigs of core-metrics-extractor", maxSeries)

// labelPriority is the label of series that count the requests of one priority.
const labelPriority = "priority"

// queueRanks are the labels of ranks with a queue and a cache of their own. Other ranks work together on the same requests.
var queueRanks = [][]byte{[]byte("dp_rank"), []byte("attn_dp_rank"), []byte("data_parallel_rank")}

// A metricValue is the value of a metric, collected from all of its series.
type metricValue struct {
	sum, greatest float64
	seen          bool
}

// seriesKey says which series count as one. Series of one key differ only by their ranks.
type seriesKey struct {
	slot     int
	part     uint64 // hash of the labels other than ranks and priority
	priority uint64 // hash of the priority; 0 for a missing or empty one
}

// A tally collects the series of a page's metrics. Its rule is that of the labels, whatever the engine:
//
//	tp_rank, pp_rank, moe_ep_rank, ...   the greatest counts: all ranks of a scheduler report the same requests and tokens
//	priority                             the series without a priority counts, if a gauge has one: it contains the others. Else their sum
//	dp_rank, and any other label         the sum: these are different schedulers, models or kinds
//
// It allocates nothing for a page like the last one.
type tally struct {
	metrics []metricValue // by slot
	keys    []seriesKey
	values  []float64 // of the keys
	index   map[seriesKey]int
	full    bool // some series were left out
	seed    maphash.Seed
}

func newTally(slots int) tally {
	return tally{metrics: make([]metricValue, slots), index: map[seriesKey]int{}, seed: maphash.MakeSeed()}
}

func (t *tally) resetTally() {
	clear(t.metrics)
	clear(t.index)
	t.keys, t.values, t.full = t.keys[:0], t.values[:0], false
}

// addSeries adds a series.
func (t *tally) addSeries(slot int, r role, labels []byte, value float64) {
	f := &t.metrics[slot]
	if !f.seen || value > f.greatest {
		f.greatest = value
	}
	f.seen = true
	key := t.seriesKeyOf(slot, r, labels)
	switch at, known := t.index[key]; {
	case known:
		t.values[at] = max(t.values[at], value)
	case t.isContained(key):
	case len(t.keys) == maxSeries:
		t.full = true
	default:
		t.index[key] = len(t.keys)
		t.keys, t.values = append(t.keys, key), append(t.values, value)
	}
}

// seriesKeyOf returns the key of a series. Counters have no total: SGLang counts requests without a priority under the empty one.
func (t *tally) seriesKeyOf(slot int, r role, labels []byte) seriesKey {
	key := seriesKey{slot: slot}
	for {
		name, value, rest, ok := cutSeriesLabel(labels)
		if !ok {
			return key
		}
		labels = rest
		switch {
		case isSharedRank(name):
		case r == asCount && string(name) == labelPriority:
			if len(value) > 0 {
				key.priority = maphash.Bytes(t.seed, value) | 1
			}
		case len(value) > 0: // an empty label is like a missing one
			key.part += maphash.Bytes(t.seed, name) * (maphash.Bytes(t.seed, value) | 1) // in any order
		}
	}
}

// isContained reports whether the total of a series' priorities is known.
func (t *tally) isContained(key seriesKey) bool {
	if key.priority == 0 {
		return false
	}
	key.priority = 0
	_, known := t.index[key]
	return known
}

// computeSums computes the sums. Its error is errManySeries.
func (t *tally) computeSums() error {
	if t.full {
		return errManySeries
	}
	for i, key := range t.keys {
		if !t.isContained(key) {
			t.metrics[key.slot].sum += t.values[i]
		}
	}
	return nil
}

// firstValue returns the first of the slots with values.
func (t *tally) firstValue(slots []int) metricValue {
	for _, i := range slots {
		if t.metrics[i].seen {
			return t.metrics[i]
		}
	}
	return metricValue{}
}

// isSharedRank reports whether a label is the rank of a worker that shares its requests with those of other ranks.
func isSharedRank(name []byte) bool {
	before, isRank := bytes.CutSuffix(name, []byte("rank"))
	if !isRank || len(before) > 0 && before[len(before)-1] != '_' {
		return false
	}
	return !slices.ContainsFunc(queueRanks, func(own []byte) bool { return bytes.Equal(name, own) })
}
