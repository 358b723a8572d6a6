package transition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/pkg/gatewayapi"
	"fairlead.dev/services/ingress-reconciler/internal/plan"
)

const (
	engine  = plan.Slot("engine")
	decoder = plan.Slot("decoder")
	hold    = 5 * time.Minute
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// entry returns an old object of the entry that was superseded the given time ago.
func entry(ago time.Duration) Old { return Old{Slot: plan.Entry, Superseded: now.Add(-ago)} }

// unmarked is an old object without a time.
var unmarked = Old{Slot: plan.Entry}

// served returns an old object whose host an accepted route of OME serves.
func served(o Old) Old {
	o.Served = true
	return o
}

func wanted(slot plan.Slot, all ...gatewayapi.Acceptance) []Wanted {
	var w []Wanted
	for _, a := range all {
		w = append(w, Wanted{Slot: slot, Verdict: a})
	}
	return w
}

func TestDecide(t *testing.T) {
	t.Parallel()
	accepted, pending, refused := wanted(plan.Entry,
		gatewayapi.Accepted), wanted(plan.Entry, gatewayapi.Pending), wanted(plan.Entry, gatewayapi.Refused)
	tests := []struct {
		name string
		give Input
		want []Action
		next time.Duration
	}{
		{name: "nothing old"},
		{
			name: "kept", give: Input{HoldDuration: hold, FrozenSlots: []plan.Slot{plan.Entry}, Old: []Old{unmarked, entry(time.Hour)}},
			want: []Action{Retain, Retain},
		},
		{
			name: "kept, although new objects are accepted",
			give: Input{HoldDuration: hold, FrozenSlots: []plan.Slot{plan.Entry}, Wanted: accepted, Old: []Old{entry(time.Hour)}},
			want: []Action{Retain},
		},
		{
			name: "kept, and withheld", give: Input{HoldDuration: hold, FrozenSlots: plan.Slots, Disabled: true, Old: []Old{unmarked}},
			want: []Action{Retain},
		},
		{
			name: "of no known slot, while some are kept",
			give: Input{HoldDuration: hold, FrozenSlots: []plan.Slot{engine}, Old: []Old{{Slot: ""}}}, want: []Action{Retain},
		},
		{name: "of no known slot", give: Input{HoldDuration: hold, Old: []Old{{Slot: ""}}}, want: []Action{Delete}},

		{
			name: "withheld", give: Input{HoldDuration: hold, Disabled: true, Old: []Old{unmarked, entry(time.Second)}},
			want: []Action{Delete, Delete},
		},
		{
			name: "handed over", give: Input{HoldDuration: hold, Disabled: true, HandedToOME: true, Old: []Old{served(unmarked)}},
			want: []Action{Mark}, next: hold,
		},
		{
			name: "handed over, and OME does not serve it",
			give: Input{
				HoldDuration: hold, Disabled: true, HandedToOME: true, Old: []Old{unmarked, entry(time.Hour)},
			}, want: []Action{Retain, Retain},
		},
		{
			name: "handed over without a hold, and OME does not serve it",
			give: Input{Disabled: true, HandedToOME: true, Old: []Old{unmarked}}, want: []Action{Retain},
		},
		{
			name: "of another service, and OME does not serve it",
			give: Input{Disabled: true, HandedToOME: true, Old: []Old{{Slot: plan.Entry, Lost: true}}}, want: []Action{Delete},
		},
		{
			name: "handed over, for a while",
			give: Input{HoldDuration: hold, Disabled: true, HandedToOME: true, Old: []Old{served(entry(time.Minute))}},
			want: []Action{Retain}, next: 4 * time.Minute,
		},
		{
			name: "handed over, for long enough",
			give: Input{HoldDuration: hold, Disabled: true, HandedToOME: true, Old: []Old{served(entry(hold))}}, want: []Action{Delete},
		},
		{
			name: "handed over, without a hold", give: Input{Disabled: true, HandedToOME: true, Old: []Old{served(unmarked)}},
			want: []Action{Delete},
		},

		{name: "no new objects", give: Input{HoldDuration: hold, Old: []Old{unmarked, entry(time.Second)}}, want: []Action{Delete, Delete}},
		{
			name: "no new objects, while other slots have some",
			give: Input{HoldDuration: hold, Wanted: wanted(engine, gatewayapi.Pending), Old: []Old{unmarked}}, want: []Action{Delete},
		},

		{
			name: "not accepted yet", give: Input{HoldDuration: hold, Wanted: pending, Old: []Old{unmarked, entry(time.Hour)}},
			want: []Action{Retain, Retain},
		},
		{
			name: "refused", give: Input{HoldDuration: hold, Wanted: refused, Old: []Old{unmarked, entry(time.Hour)}},
			want: []Action{Retain, Retain},
		},
		{
			name: "some not accepted",
			give: Input{HoldDuration: hold, Wanted: wanted(plan.Entry, gatewayapi.Accepted, gatewayapi.Pending, gatewayapi.Accepted),
				Old: []Old{entry(time.Hour)}}, want: []Action{Retain},
		},
		{name: "not accepted, without a hold", give: Input{Wanted: pending, Old: []Old{unmarked}}, want: []Action{Retain}},

		{name: "accepted", give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{unmarked}}, want: []Action{Mark}, next: hold},
		{
			name: "accepted, all of several",
			give: Input{HoldDuration: hold, Wanted: wanted(plan.Entry, gatewayapi.Accepted, gatewayapi.Accepted), Old: []Old{unmarked}},
			want: []Action{Mark}, next: hold,
		},
		{
			name: "held", give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{entry(time.Minute)}}, want: []Action{Retain},
			next: 4 * time.Minute,
		},
		{
			name: "held to the last moment", give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{entry(hold - 1)}},
			want: []Action{Retain}, next: 1,
		},
		{
			name: "held long enough, before a restart", give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{entry(time.Hour)}},
			want: []Action{Delete},
		},
		{
			name: "accepted, without a hold", give: Input{Wanted: accepted, Old: []Old{unmarked, entry(time.Second)}},
			want: []Action{Delete, Delete},
		},
		{name: "a negative hold is none", give: Input{HoldDuration: -1, Wanted: accepted, Old: []Old{unmarked}}, want: []Action{Delete}},
		{
			name: "marked by a clock that is ahead",
			give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{entry(-time.Second), entry(-24 * time.Hour)}},
			want: []Action{Mark, Mark}, next: hold,
		},
		{name: "marked now", give: Input{HoldDuration: hold, Wanted: accepted, Old: []Old{entry(0)}}, want: []Action{Retain}, next: hold},

		{
			name: "several, the next one first",
			give: Input{
				HoldDuration: hold, Wanted: accepted, Old: []Old{entry(time.Minute), entry(4 * time.Minute), unmarked, entry(hold)},
			},
			want: []Action{Retain, Retain, Mark, Delete}, next: time.Minute,
		},
		{name: "taken by another service", give: Input{
			Now: now, HoldDuration: time.Minute, FrozenSlots: []plan.Slot{plan.Entry}, Wanted: []Wanted{
				{Slot: plan.Entry, Verdict: gatewayapi.Accepted},
			}, Old: []Old{{Slot: plan.Entry, Lost: true}},
		}, want: []Action{Delete}},
		{name: "slots apart", give: Input{
			HoldDuration: hold, FrozenSlots: []plan.Slot{decoder},
			Wanted: append(wanted(plan.Entry, gatewayapi.Accepted), wanted(engine, gatewayapi.Refused)...),
			Old:    []Old{entry(hold), {Slot: engine, Superseded: now.Add(-hold)}, {Slot: decoder}},
		}, want: []Action{Delete, Retain, Retain}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.give.Now = now
			fates, next := Decide(tt.give)
			assert.Equal(t, tt.want, fates)
			assert.Equal(t, tt.next, next)
		})
	}
}

// A marked object is deleted after the hold and not before, even if several replicas decide in between.
func TestAnObjectGoesAfterTheHold(t *testing.T) {
	t.Parallel()
	old := unmarked
	for at := time.Duration(0); ; at += 7 * time.Second {
		in := Input{Now: now.Add(at), HoldDuration: hold, Wanted: wanted(plan.Entry, gatewayapi.Accepted), Old: []Old{old}}
		fates, next := Decide(in)
		if fates[0] == Delete {
			assert.GreaterOrEqual(t, at, hold)
			assert.Less(t, at, hold+7*time.Second)
			return
		}
		assert.Equal(t, hold-at, next)
		if fates[0] == Mark {
			assert.Zero(t, at, "the object is marked only once")
			old.Superseded = in.Now
		}
	}
}
