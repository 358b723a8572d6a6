// Package events writes Events about objects, for users who can act on them.
//
// A Recorder queues Events and writes them while Run runs. client-go's EventCorrelator counts and limits them: an Event that
// repeats within minutes increases the count of the existing one; from the eleventh message for one reason within ten
// minutes, messages are merged into one Event; and for one object a controller writes a burst of 25 Events of each type
// (Normal, Warning), then one in five minutes. So no tenant can cause unlimited writes. client-go's broadcasters are not
// suitable: that of tools/events shows only the first of several messages with one reason, and that of tools/record logs
// whole objects.
package events

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/conditions"
	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/logging"
)

const (
	// maxQueued is the maximum number of queued Events, about a megabyte; more are dropped. client-go's broadcasters have
	// the same limit.
	maxQueued = 1000
	// maxMessage is the limit of the API. Longer messages are truncated.
	maxMessage = 1024
	// writeTimeout and maxAttempts limit the time for which one Event can delay the others while the API server is
	// unavailable.
	writeTimeout = 5 * time.Second
	maxAttempts  = 4
	// retryDelay is the time before the second attempt; it doubles with each.
	retryDelay = time.Second
)

// Params are the parts of a Recorder.
type Params struct {
	Client     kube.Clientset
	Controller string // reportingController of the Events
	Instance   string // reportingInstance; empty for the host name, which is the name of a pod
	Log        *zap.Logger
	Clock      clock.PassiveClock
}

// Recorder writes Events.
type Recorder struct {
	params     Params
	source     corev1.EventSource
	queue      chan *corev1.Event
	correlator *record.EventCorrelator
	retryDelay time.Duration
}

// New returns a Recorder. Run starts it.
func New(p Params) *Recorder {
	host, _ := os.Hostname() // Events without an instance are valid
	p.Log = p.Log.Named("events")
	return &Recorder{
		params:     p,
		source:     corev1.EventSource{Component: p.Controller, Host: cmp.Or(p.Instance, host)},
		queue:      make(chan *corev1.Event, maxQueued),
		correlator: record.NewEventCorrelator(p.Clock),
		retryDelay: retryDelay,
	}
}

// Reference returns a reference to an object.
func Reference(kind schema.GroupVersionKind, o metav1.Object) *corev1.ObjectReference {
	return &corev1.ObjectReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(),
	}
}

// Event queues an Event about an object. kind is Normal or Warning; reason is one of a fixed set. It never blocks.
func (r *Recorder) Event(about *corev1.ObjectReference, kind, reason, message string) {
	now := metav1.NewTime(r.params.Clock.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault),
			Name:      util.GenerateEventName(about.Name, now.UnixNano()),
		},
		InvolvedObject: *about, Type: kind, Reason: reason, Message: conditions.TruncateMessage(message, maxMessage), Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: r.source, ReportingController: r.source.Component, ReportingInstance: r.source.Host,
	}
	select {
	case r.queue <- event:
	default:
		r.reportLost(event, errors.New("too many Events wait to be written"))
	}
}

// Run writes Events until ctx ends. Call it once.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-r.queue:
			if err := r.recordEvent(ctx, event); err != nil && ctx.Err() == nil {
				r.reportLost(event, err)
			}
		}
	}
}

// recordEvent writes an Event, or increases the count of an existing one.
func (r *Recorder) recordEvent(ctx context.Context, event *corev1.Event) error {
	next, err := r.correlator.EventCorrelate(event)
	switch {
	case err != nil:
		return fmt.Errorf("correlate Event: %w", err)
	case next.Skip:
		return errors.New("too many Events about one object")
	}
	for attempt, delay := 1, r.retryDelay; ; attempt, delay = attempt+1, 2*delay {
		written, err := r.writeEvent(ctx, next)
		switch {
		case err == nil:
			r.correlator.UpdateState(written)
			return nil
		case attempt == maxAttempts || !isTransient(err):
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
	}
}

// writeEvent creates an Event, or patches the one that it repeats, if that still exists: Events expire.
func (r *Recorder) writeEvent(ctx context.Context, next *record.EventCorrelateResult) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	client := r.params.Client.CoreV1().Events(next.Event.Namespace)
	if next.Event.Count > 1 {
		written, err := client.Patch(ctx, next.Event.Name, types.StrategicMergePatchType, next.Patch, metav1.PatchOptions{})
		if !apierrors.IsNotFound(err) {
			return written, err
		}
	}
	created := *next.Event
	created.ResourceVersion = ""
	return client.Create(ctx, &created, metav1.CreateOptions{})
}

// isTransient reports whether a write may succeed later. An error without a status is a connection error.
func isTransient(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}

func (r *Recorder) reportLost(event *corev1.Event, err error) {
	level := zap.WarnLevel
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		level = zap.DebugLevel // the object is about to go
	}
	r.params.Log.Log(level, "Dropped Event", zap.String(logging.KeyKind, event.InvolvedObject.Kind),
		zap.String(logging.KeyNamespace, event.InvolvedObject.Namespace), zap.String(logging.KeyName, event.InvolvedObject.Name),
		zap.String(logging.KeyReason, event.Reason), zap.Error(err))
}
