package pools

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/events"
	"fairlead.dev/pkg/kube"
)

// eventController is the reportingController of Events.
const eventController = "fairlead-endpoint-picker"

// Events records Events about InferencePools. Without a cluster it records none.
type Events struct {
	recorder   *events.Recorder
	references func() []corev1.ObjectReference // of all InferencePools; nil before New
}

// NewEvents returns Events that an API server stores, or without a client those that nobody reads.
func NewEvents(client kube.Clientset, log *zap.Logger, c clock.PassiveClock) *Events {
	if client == nil {
		return &Events{}
	}
	return &Events{recorder: events.New(events.Params{Client: client, Controller: eventController, Log: log, Clock: c})}
}

// Event queues an Event about every pool.
func (e *Events) Event(kind, reason, message string) {
	for _, about := range e.references() {
		e.reportAbout(&about, kind, reason, message)
	}
}

// reportAbout queues an Event about one pool.
func (e *Events) reportAbout(pool *corev1.ObjectReference, kind, reason, message string) {
	if e.recorder != nil {
		e.recorder.Event(pool, kind, reason, message)
	}
}

// Run writes Events until ctx ends.
func (e *Events) Run(ctx context.Context) {
	if e.recorder != nil {
		e.recorder.Run(ctx)
	}
}
