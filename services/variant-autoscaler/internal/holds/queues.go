package holds

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxPage is the size of a page of metrics, and maxPageLine that of a line on it. The largest known pages have 2 MiB.
	maxPage     = 16 << 20
	maxPageLine = 64 << 10
	// maxQueues is the size of the lines about queues.
	maxQueues = 1 << 20
)

// pageQueue is a queue on a page of metrics.
type pageQueue struct {
	pool, model string
	requests    int
}

// pageQueues are the queues on a page of metrics.
type pageQueues []pageQueue

// readQueues reads the queues on a page of metrics, under both of their names.
func readQueues(page io.Reader) (pageQueues, error) {
	lines := bufio.NewScanner(io.LimitReader(page, maxPage))
	lines.Buffer(make([]byte, 0, 4<<10), maxPageLine)
	var found bytes.Buffer
	for lines.Scan() {
		text := lines.Text()
		name, _, _ := strings.Cut(text, "{")
		if name != collect.NewQueue && name != collect.LegacyQueue {
			continue
		}
		if found.Len()+len(text) > maxQueues {
			return nil, errors.New("the queues of the picker have more than 1 MiB")
		}
		found.WriteString(text + "\n")
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(&found)
	if err != nil {
		return nil, err
	}
	// A picker that exports both names has the same requests under both.
	family := cmp.Or(families[collect.NewQueue], families[collect.LegacyQueue])
	var queues pageQueues
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		value := m.GetUntyped().GetValue()
		if !(value > 0) { // nor NaN
			continue
		}
		queues = append(queues, pageQueue{
			pool: labels["inference_pool"], model: cmp.Or(labels["target_model_name"], labels["model_name"]),
			requests: int(min(value, maxRequests)),
		})
	}
	return queues, nil
}

// waitingOf returns how many requests wait for each model of a pool. A queue without a pool is that of the only one.
func (queues pageQueues) waitingOf(pool snapshot.PoolKey, only bool) map[string]int { //nolint:revive // what the caller knows of the picker
	waiting := map[string]int{}
	for _, q := range queues {
		if q.pool == pool.Name || q.pool == "" && only {
			waiting[q.model] = min(waiting[q.model]+q.requests, maxRequests)
		}
	}
	return waiting
}
