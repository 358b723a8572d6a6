package modelserver

import (
	"bytes"
	"slices"
	"strings"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Labels of the series that lists LoRA adapters. vLLM writes a new series whenever a list changes, and leaves the old
// ones on the page.
const (
	labelMaxLoRA         = "max_lora"
	labelRunningAdapters = "running_lora_adapters"
	labelWaitingAdapters = "waiting_lora_adapters"
)

// lora is the newest of the series that list adapters. Its value is the time.
type lora struct {
	seen             bool
	at               float64
	most             int
	running, waiting []byte // as on the page; the memory is kept from page to page
}

func (l *lora) take(labels []byte, at float64) {
	if l.seen && at < l.at {
		return
	}
	l.seen, l.at = true, at
	l.most = labelNumber(labels, labelMaxLoRA)
	l.running = append(l.running[:0], labelValue(labels, labelRunningAdapters)...)
	l.waiting = append(l.waiting[:0], labelValue(labels, labelWaitingAdapters)...)
}

// pageMemory is the last scheduling.Page of an endpoint and what it was made of. As long as pages say the same, it is
// handed out again.
type pageMemory struct {
	made *scheduling.Page
	lora lora
	of   []slot // of the custom metrics
}

// page returns what a reading has beside gauges, nil if there is nothing.
func (m *pageMemory) page(r *reading) *scheduling.Page {
	if m.same(r) {
		return m.made
	}
	m.lora = lora{seen: r.lora.seen, most: r.lora.most, running: bytes.Clone(r.lora.running), waiting: bytes.Clone(r.lora.waiting)}
	m.of = m.of[:0]
	for _, i := range r.custom {
		m.of = append(m.of, r.slots[i])
	}
	m.made = r.newPage()
	return m.made
}

func (m *pageMemory) same(r *reading) bool {
	if m.lora.seen != r.lora.seen || len(m.of) != len(r.custom) {
		return false
	}
	for k, i := range r.custom {
		if m.of[k].seen != r.slots[i].seen || m.of[k].greatest != r.slots[i].greatest {
			return false
		}
	}
	return !r.lora.seen || m.lora.most == r.lora.most &&
		bytes.Equal(m.lora.running, r.lora.running) && bytes.Equal(m.lora.waiting, r.lora.waiting)
}

// newPage makes the page of the figures that were read.
func (r *reading) newPage() *scheduling.Page {
	p := &scheduling.Page{}
	if r.lora.seen {
		p.Adapters = r.lora.adapters()
	}
	for k, i := range r.custom {
		if !r.slots[i].seen {
			continue
		}
		if p.Attributes == nil {
			p.Attributes = make(map[string]float64, len(r.custom))
		}
		p.Attributes[r.attributes[k]] = r.slots[i].greatest
	}
	if p.Adapters == nil && p.Attributes == nil {
		return nil
	}
	return p
}

// adapters reads the lists. vLLM puts every adapter that has requests into both; one that runs is not waited for.
func (l *lora) adapters() *scheduling.Adapters {
	a := &scheduling.Adapters{Max: l.most, Running: splitNames(l.running)}
	for _, name := range splitNames(l.waiting) {
		if !slices.Contains(a.Running, name) {
			a.Waiting = append(a.Waiting, name)
		}
	}
	return a
}

// splitNames returns the names of a list, each once.
func splitNames(list []byte) []string {
	var names []string
	for name := range strings.SplitSeq(unescaper.Replace(string(list)), ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
