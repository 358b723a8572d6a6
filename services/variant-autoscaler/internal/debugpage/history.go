package debugpage

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// point is a model at one time. NaN is what was not known.
type point struct {
	at             int64 // Unix time
	rate, demand   float32
	ttft, itl      float32 // measured mean divided by the target
	cost           float32 // per hour
	desired, ready float32
}

// points are in the order of time.
type points []point

func pointOf(m *model, g *snapshot.Group, d *decision.Group) point {
	unknown := float32(math.NaN())
	p := point{rate: unknown, demand: unknown, ttft: targetRatio(m.MeasuredTTFT, m.TTFT), itl: targetRatio(m.MeasuredITL, m.ITL),
		cost: float32(m.Cost)}
	if m.Known() {
		p.rate, p.demand = float32(m.Rate), float32(m.Demand)
	}
	for i := range d.Variants {
		p.desired += float32(d.Variants[i].Desired)
		p.ready += float32(g.Variants[i].Ready)
	}
	return p
}

// targetRatio returns a mean divided by its target, or NaN without one of the two.
func targetRatio(mean, target float64) float32 {
	if mean <= 0 || target <= 0 {
		return float32(math.NaN())
	}
	return float32(min(mean/target, math.MaxFloat32))
}

// withPoint returns the points with a new one, without those that are too old or of the same slot. It does not change the receiver.
func (p points) withPoint(now time.Time, added point) points {
	added.at = now.Unix()
	slotOf := func(at int64) int64 { return at / int64(slot.Seconds()) }
	kept := make(points, 0, min(len(p)+1, maxPoints))
	for _, old := range p {
		if slotOf(old.at) > slotOf(added.at)-maxPoints && slotOf(old.at) < slotOf(added.at) {
			kept = append(kept, old)
		}
	}
	return append(kept, added)
}

// maxGap returns the seconds between two points from which passes are missing between them.
func (p points) maxGap() int64 {
	var steps []int64
	for i := 1; i < len(p); i++ {
		steps = append(steps, p[i].at-p[i-1].at)
	}
	if len(steps) == 0 {
		return math.MaxInt64
	}
	slices.Sort(steps)
	const missing = 3 // passes
	return missing * max(steps[len(steps)/2], int64(slot.Seconds()))
}

// MarshalJSON writes a column for each figure.
func (p points) MarshalJSON() ([]byte, error) {
	times := make([]int64, 0, len(p))
	for i := range p {
		times = append(times, p[i].at)
	}
	columns := map[string]any{"unixTime": times}
	for name, value := range map[string]func(p *point) float32{
		"requestsPerSecond": func(p *point) float32 { return p.rate }, "demandPerSecond": func(p *point) float32 { return p.demand },
		"ttftToTarget": func(p *point) float32 { return p.ttft }, "itlToTarget": func(p *point) float32 { return p.itl },
		"costPerHour": func(p *point) float32 { return p.cost }, "desired": func(p *point) float32 { return p.desired },
		"ready": func(p *point) float32 { return p.ready },
	} {
		columns[name] = p.columnJSON(value)
	}
	return json.Marshal(columns)
}

// columnJSON returns the values of a figure as JSON, with null for what was not known.
func (p points) columnJSON(value func(p *point) float32) json.RawMessage {
	text := []byte{'['}
	for i := range p {
		if i > 0 {
			text = append(text, ',')
		}
		if v := float64(value(&p[i])); math.IsNaN(v) || math.IsInf(v, 0) {
			text = append(text, "null"...)
		} else {
			text = strconv.AppendFloat(text, v, 'g', -1, 32) // bits
		}
	}
	return append(text, ']')
}
