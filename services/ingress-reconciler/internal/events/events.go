// Package events tells users of what became of their objects, by Events.
package events

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientevents "k8s.io/client-go/tools/events"
)

// Recorder makes Events. client-go counts those that come again, and drops what is too many.
type Recorder struct {
	broadcaster clientevents.EventBroadcaster
	recorder    clientevents.EventRecorder
}

// New returns a Recorder whose Events are from a controller. Nothing is written before Run.
func New(client kubernetes.Interface, controller string) *Recorder {
	b := clientevents.NewBroadcaster(&clientevents.EventSinkImpl{Interface: client.EventsV1()})
	return &Recorder{broadcaster: b, recorder: b.NewRecorder(runtime.NewScheme(), controller)}
}

// Run writes Events until ctx ends. It runs once.
func (r *Recorder) Run(ctx context.Context) {
	defer r.broadcaster.Shutdown()
	// An error would mean that the broadcaster has ended.
	_ = r.broadcaster.StartRecordingToSinkWithContext(ctx)
	<-ctx.Done()
}

// maxNote is the most that an Event can say.
const maxNote = 1024

// Event tells of an object. kind is Normal or Warning, reason one that does not change.
func (r *Recorder) Event(about *corev1.ObjectReference, kind, reason, message string) {
	r.recorder.Eventf(about, nil, kind, reason, "Reconcile", "%s", cut(message))
}

// cut returns what an Event can say of a message. Half a character would grow when it is encoded, and the Event be refused.
func cut(message string) string {
	const more = "..."
	if len(message) <= maxNote {
		return message
	}
	return strings.ToValidUTF8(message[:maxNote-len(more)], "") + more
}
