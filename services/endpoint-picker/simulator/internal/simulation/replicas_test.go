package simulation

import (
	"fmt"
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
)

// IndependentPickers is the real endpoint picker, with a number of replicas that tell each other nothing.
func IndependentPickers(replicas int, split Split) Policy {
	name := fmt.Sprintf("picker x%d", replicas)
	if split == AtRandom {
		name += " random"
	}
	return pickerOf(name, replicas, split, pluginconfig.Default)
}

// ConnectedPickers is IndependentPickers with replicas that tell each other of their requests. The others hear of an event after the delay.
func ConnectedPickers(replicas int, split Split, delay time.Duration) Policy {
	p := IndependentPickers(replicas, split)
	p.Name += " telling"
	p.start = func(f *fleet) chooser {
		started := newPicker(f, replicas, split, pluginconfig.Default)
		for _, from := range started.replicas {
			to := &listeners{delay: delay}
			for _, r := range started.replicas {
				if r != from {
					to.addReplica(r)
				}
			}
			from.factory.SetPublisher(to)
		}
		return started
	}
	return p
}

// listeners are the other replicas of one that publishes its events.
type listeners struct {
	delay time.Duration
	apply []func(e estimate.Event, at time.Time)
	after func(d time.Duration, do func())
	now   func() time.Time
}

// addReplica adds a replica that hears of the events.
func (l *listeners) addReplica(r *replica) {
	view := r.factory.NewReplica()
	l.after, l.now = r.timeline.scheduleAfter, r.timeline.Now
	l.apply = append(l.apply, func(e estimate.Event, at time.Time) {
		if e.Endpoint != nil {
			i := slices.IndexFunc(r.members, func(m *member) bool { return m.endpoint.Identity() == e.Endpoint.Identity() })
			if i < 0 {
				return
			}
			e.Endpoint = r.members[i].endpoint
		}
		view.ApplyEvent(e, at)
	})
}

// PublishEvent implements estimate.Publisher.
func (l *listeners) PublishEvent(e estimate.Event) {
	e.Chain = slices.Clone(e.Chain)
	at := l.now()
	l.after(l.delay, func() {
		for _, apply := range l.apply {
			apply(e, at)
		}
	})
}
