package modelserver

import (
	"bytes"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

// Labels of the series that lists LoRA adapters. When a list changes, vLLM writes a new series and leaves the old ones on
// the page.
const (
	labelMaxLoRA         = "max_lora"
	labelRunningAdapters = "running_lora_adapters"
	labelWaitingAdapters = "waiting_lora_adapters"
)

// lora is the newest of the series that list adapters. The value of the series is its time.
type lora struct {
	found            bool
	at               float64
	most             int
	running, waiting []byte // as on the page; the memory is reused for the next page
}

func (l *lora) readLabels(labels []byte, at float64) {
	if l.found && at < l.at {
		return
	}
	l.found, l.at = true, at
	l.most = labelNumber(labels, labelMaxLoRA)
	l.running = append(l.running[:0], labelValue(labels, labelRunningAdapters)...)
	l.waiting = append(l.waiting[:0], labelValue(labels, labelWaitingAdapters)...)
}

// pageMemory is the last endpoint.Page of an endpoint and its input. It is returned again while the input stays the same.
type pageMemory struct {
	page         *endpoint.Page
	lora         lora
	metricValues []metricValue // of the custom metrics
}

// pageOf returns the values of a reading other than gauges, nil if there are none.
func (m *pageMemory) pageOf(r *reading) *endpoint.Page {
	if m.isUnchanged(r) {
		return m.page
	}
	m.lora = lora{found: r.lora.found, most: r.lora.most, running: bytes.Clone(r.lora.running), waiting: bytes.Clone(r.lora.waiting)}
	m.metricValues = m.metricValues[:0]
	for _, i := range r.custom {
		m.metricValues = append(m.metricValues, r.metrics[i])
	}
	m.page = r.newPage()
	return m.page
}

func (m *pageMemory) isUnchanged(r *reading) bool {
	same := func(v metricValue, slot int) bool {
		return v.seen == r.metrics[slot].seen && v.greatest == r.metrics[slot].greatest
	}
	if m.lora.found != r.lora.found || !slices.EqualFunc(m.metricValues, r.custom, same) {
		return false
	}
	return !r.lora.found || m.lora.most == r.lora.most &&
		bytes.Equal(m.lora.running, r.lora.running) && bytes.Equal(m.lora.waiting, r.lora.waiting)
}

// newPage makes a page from the reading.
func (r *reading) newPage() *endpoint.Page {
	p := &endpoint.Page{}
	if r.lora.found {
		p.Adapters = r.lora.adapters()
	}
	for k, i := range r.custom {
		if !r.metrics[i].seen {
			continue
		}
		if p.Attributes == nil {
			p.Attributes = make(map[string]float64, len(r.custom))
		}
		p.Attributes[r.Custom[k].Attribute] = r.metrics[i].greatest
	}
	if p.Adapters == nil && p.Attributes == nil {
		return nil
	}
	return p
}

// adapters parses the lists. vLLM puts every adapter with requests into both lists; a running adapter does not count as
// waiting.
func (l *lora) adapters() *endpoint.Adapters {
	a := &endpoint.Adapters{Max: l.most, Running: splitNames(l.running)}
	for _, name := range splitNames(l.waiting) {
		if !slices.Contains(a.Running, name) {
			a.Waiting = append(a.Waiting, name)
		}
	}
	return a
}

// splitNames returns the distinct names of a list.
func splitNames(list []byte) []string {
	var names []string
	for name := range strings.SplitSeq(unescaper.Replace(string(list)), ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
