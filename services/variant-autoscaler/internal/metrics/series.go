package metrics

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
)

const (
	// maxLabel is the greatest length of a label value, in bytes. It is upstream's. Names in Kubernetes have up to 253 characters, but a
	// selector of a HorizontalPodAutoscaler cannot have more than 63.
	maxLabel = 128
	// unknown is the value of a label that has none.
	unknown = "unknown"

	directionUp   = "up"
	directionDown = "down"
)

// labels are those that every series of a variant has. Selectors of HorizontalPodAutoscalers use some of them: variant_name those for
// WVA 0.4 to 0.9, target_name and target_kind those for its early versions.
var labels = []string{"variant_name", "target_name", "target_kind", "namespace", "accelerator_type"}

// Series are the series that autoscalers read, of a whole set of variants at a time. Only the leader has any, and only after its first
// decision: a missing series makes an autoscaler wait, and a zero would make it remove replicas.
type Series struct {
	published

	desired, present, ratio, ttft, itl *prometheus.Desc
	scaling, conflicts, resolution     *prometheus.Desc

	mu       sync.Mutex
	counters map[string]*counters // by the labels of a variant
}

// counters are those of a variant. They end with its series.
type counters struct {
	scaling    map[change]float64
	conflicts  float64
	suppressed bool
}

// change is a change of desired replicas.
type change struct{ direction, reason string }

// newSeries returns Series without variants. An instance that is not empty is a label of all.
func newSeries(instance string) *Series {
	var constant prometheus.Labels
	if instance != "" {
		constant = prometheus.Labels{"controller_instance": labelValue(instance)}
	}
	s := &Series{published: published{constant: constant}, counters: map[string]*counters{}}
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return s.newDesc(name, help, slices.Concat(labels, more)...)
	}
	s.desired = desc("wva_desired_replicas", "Replicas that a variant is to have. Absent while there is no decision on the variant.")
	s.present = desc("wva_current_replicas", "Replicas that the target of a variant asks for.")
	s.ratio = desc("wva_desired_ratio", "Desired replicas divided by current replicas. With no current replicas, the desired replicas.")
	s.ttft = desc("wva_predicted_ttft_seconds", "Time to the first token that the plan predicts for a variant.", "model_name")
	s.itl = desc("wva_predicted_itl_seconds", "Time between tokens that the plan predicts for a variant.", "model_name")
	s.scaling = desc("wva_replica_scaling_total",
		"Changes of the desired replicas of a variant, by direction (up, down) and reason. It begins with the term of a leader.", "direction", "reason")
	s.conflicts = desc("wva_deployment_target_conflicts_total",
		"How often a variant lost its target to another variant. It begins with the term of a leader.")
	s.resolution = desc("wva_conflict_resolution_status",
		"Variants with the same target: 1 for the one that has it (winner), 0 for the others (suppressed), which have no desired replicas.", "resolution")
	return s
}

// replaceSeries replaces all series, and returns the number of variants that have none, because their labels equal those of another
// variant.
func (s *Series) replaceSeries(variants []decision.ActedVariant) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.counters
	s.counters = make(map[string]*counters, len(variants))
	next := make([]series, 0, 4*len(variants))
	for i := range variants {
		v := &variants[i]
		values := []string{labelValue(v.Name), labelValue(v.Target.Name), labelValue(v.Target.Kind), labelValue(v.Namespace),
			labelValue(v.Accelerator)}
		key := strings.Join(values, "\xff") // not in UTF-8
		if s.counters[key] != nil {
			dropped++
			continue
		}
		c := before[key]
		if c == nil {
			c = &counters{scaling: map[change]float64{}}
		}
		s.counters[key] = c
		c.addDecision(v)
		next = s.appendSeries(next, v, c, values)
	}
	s.current.Store(&next)
	return dropped
}

// clearSeries removes all series.
func (s *Series) clearSeries() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counters = map[string]*counters{}
	s.current.Store(nil)
}

// addDecision counts the change that the decision on a variant makes.
func (c *counters) addDecision(v *decision.ActedVariant) {
	suppressed := v.Resolution == decision.Suppressed
	if suppressed && !c.suppressed {
		c.conflicts++
	}
	c.suppressed = suppressed
	if suppressed || !v.Decided || v.Desired == v.Previous {
		return
	}
	direction := directionUp
	if v.Desired < v.Previous {
		direction = directionDown
	}
	c.scaling[change{direction, labelValue(string(v.Reason))}]++
}

// appendSeries appends the series of a variant.
func (s *Series) appendSeries(to []series, v *decision.ActedVariant, c *counters, values []string) []series {
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, more ...string) {
		to = append(to, series{d, kind, value, append(values[:len(values):len(values)], more...)})
	}
	if c.conflicts > 0 {
		add(s.conflicts, prometheus.CounterValue, c.conflicts)
	}
	switch v.Resolution {
	case decision.Winner:
		add(s.resolution, prometheus.GaugeValue, 1, string(v.Resolution))
	case decision.Suppressed:
		add(s.resolution, prometheus.GaugeValue, 0, string(v.Resolution))
		return to
	case decision.NoConflict:
	}
	add(s.desired, prometheus.GaugeValue, float64(v.Desired))
	add(s.present, prometheus.GaugeValue, float64(v.Now))
	add(s.ratio, prometheus.GaugeValue, float64(v.Desired)/float64(max(v.Now, 1)))
	for key, times := range c.scaling {
		add(s.scaling, prometheus.CounterValue, times, key.direction, key.reason)
	}
	if p := v.Predicted; p != nil {
		for d, ms := range map[*prometheus.Desc]float64{s.ttft: p.TTFT, s.itl: p.ITL} {
			if ms > 0 && !math.IsInf(ms, 1) { // false for NaN, too
				add(d, prometheus.GaugeValue, ms/1000, labelValue(v.Model))
			}
		}
	}
	return to
}

// labelValue returns the value of a label for an untrusted text.
func labelValue(text string) string {
	text = strings.TrimSpace(strings.ToValidUTF8(text, string(utf8.RuneError)))
	text = strings.TrimSpace(strings.ToValidUTF8(text[:min(len(text), maxLabel)], "")) // a part of a character is left out
	return cmp.Or(text, unknown)
}
