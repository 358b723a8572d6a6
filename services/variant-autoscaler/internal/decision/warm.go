package decision

import (
	"fmt"
	"math"
	"time"
)

// maxCost bounds a cost, so that it is a whole number.
const maxCost = 1e18

// Warm compares what a model costs that wakes for its requests with the price of a replica that stays. Costs are micro-units per hour.
type Warm struct {
	Variant string        `json:"variant"`        // that would wake, or two: one of each role
	WakeUps float64       `json:"wakeUpsPerHour"` // expected
	Start   time.Duration `json:"start"`          // of the slowest of them
	Waiting int64         `json:"waiting"`        // cost of the time in which requests would wait
	Price   int64         `json:"price"`          // of a replica, of each of them
	Keeps   bool          `json:"keeps"`          // whether a replica stays
}

// String returns the sum, for people.
func (w *Warm) String() string {
	return fmt.Sprintf("%.2f wake-ups/h of %s, each of %s, cost %.4g/h, and a replica %.4g/h", w.WakeUps, w.Variant, w.Start.Round(time.Second),
		float64(w.Waiting)/1e6, float64(w.Price)/1e6)
}

// compareWarm returns the comparison for the model of a group, or nil if no cost of waiting is set, or if the time that a replica takes to
// start is not known.
func (d *decider) compareWarm(g int) *Warm {
	in := &d.snapshot.Groups[g]
	if !in.Zero.Enabled || in.Zero.WaitingCost <= 0 {
		return nil
	}
	w := d.wakeUpOf(d.keepersOf(d.snapshot.ModelGroups(g)))
	if w == nil || len(w.starters) == 0 {
		return nil
	}
	warm := &Warm{Variant: d.starterNames(w), WakeUps: in.Zero.WakeUps}
	for _, s := range w.starters {
		v := &d.snapshot.Groups[s.group].Variants[s.variant]
		if v.Start <= 0 {
			return nil
		}
		warm.Start, warm.Price = max(warm.Start, v.Start), warm.Price+v.Cost
	}
	waiting := in.Zero.WakeUps * warm.Start.Hours() * float64(in.Zero.WaitingCost)
	if !math.IsNaN(waiting) {
		warm.Waiting = int64(min(max(waiting, 0), maxCost))
	}
	warm.Keeps = warm.Waiting > warm.Price
	return warm
}
