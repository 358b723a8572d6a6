package scale

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// writeAttempts limits the writes of one change. A conflict means that another program wrote the object between a read and a write,
	// which takes milliseconds: a roll-out writes its status several times in a second.
	writeAttempts = 4
	// busyDelay is the time until the next attempt if the API server is busy and says no time.
	busyDelay = time.Second
)

// Errors of a Write.
var (
	// ErrChanged means that somebody has changed the replicas since the decision.
	ErrChanged = errors.New("the replicas are not those that the decision was made on")
	// ErrBusy means that the API server does not answer in time, or asks to wait for longer than there is time.
	ErrBusy = errors.New("the API server is busy, or does not answer")
	// ErrForbidden means that the API server refuses the write: the message says what to grant.
	ErrForbidden = errors.New("the API server does not permit it")
)

// Change is a number of replicas that a target gets.
type Change struct {
	Namespace string
	Target    snapshot.Target
	From      int // what the decision was made on
	To        int
}

// Writer writes scales. It is safe for concurrent use.
type Writer struct {
	client dynamic.Interface
	kinds  *Kinds
	owner  string // field manager
}

// NewWriter returns a Writer.
func NewWriter(client dynamic.Interface, kinds *Kinds, owner string) *Writer {
	return &Writer{client: client, kinds: kinds, owner: owner}
}

// Write sets the replicas of a target, and reports whether it wrote: not if the target has them already. It reads the scale first, writes
// only from the replicas that the change is based on, and only the version that it has read. So of two writers that decided on the same
// replicas, one writes, and a late one does not undo what a later decision has written. It calls permit immediately before each write; an
// error of permit prevents it, and is returned.
func (w *Writer) Write(ctx context.Context, c Change, permit func() error) (written bool, err error) {
	resource, err := w.kinds.resourceOf(ctx, c.Target)
	if err != nil {
		return false, err
	}
	client := w.client.Resource(resource).Namespace(c.Namespace)
	for attempt := 1; ; attempt++ {
		written, err = w.writeOnce(ctx, client, c, permit)
		delay, temporary := retryDelay(err)
		switch {
		case !temporary:
			return written, errorWithRemedy(err, resource)
		case attempt == writeAttempts || !waitFor(ctx, delay):
			return false, fmt.Errorf("%w: %w", ErrBusy, err)
		}
	}
}

func (w *Writer) writeOnce(ctx context.Context, client dynamic.ResourceInterface, c Change, permit func() error) (written bool, err error) {
	u, err := client.Get(ctx, c.Target.Name, metav1.GetOptions{}, scaleSubresource)
	if isUnset(err) {
		u, err = newScale(c), nil
	}
	if err != nil {
		return false, requestError(err)
	}
	switch present := scaleOf(u).Replicas; {
	case present == int64(c.To):
		return false, nil
	case present != int64(c.From):
		return false, fmt.Errorf("%w: there are %d instead of %d", ErrChanged, present, c.From)
	}
	if err := permit(); err != nil {
		return false, err
	}
	if err := unstructured.SetNestedField(u.Object, int64(c.To), "spec", "replicas"); err != nil {
		return false, fmt.Errorf("set replicas of its scale: %w", err)
	}
	_, err = client.Update(ctx, u, metav1.UpdateOptions{FieldManager: w.owner}, scaleSubresource)
	return err == nil, requestError(err)
}

// requestError returns the error of a request: ErrBusy if the API server has not answered.
func requestError(err error) error {
	if status := apierrors.APIStatus(nil); err == nil || errors.As(err, &status) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrBusy, err)
}

// newScale returns the scale of an object that has no replicas yet. It has no version, as nobody can read one.
func newScale(c Change) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale"}}
	u.SetNamespace(c.Namespace)
	u.SetName(c.Target.Name)
	return u
}

// retryDelay returns the time until another attempt, and whether it can help.
func retryDelay(err error) (delay time.Duration, temporary bool) {
	switch seconds, suggested := apierrors.SuggestsClientDelay(err); {
	case apierrors.IsConflict(err):
		return 0, true
	case suggested:
		return time.Duration(seconds) * time.Second, true
	}
	return busyDelay, apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// waitFor reports whether a time has passed before a context ends. It does not begin to wait for longer than the context lasts.
func waitFor(ctx context.Context, d time.Duration) bool {
	if end, limited := ctx.Deadline(); limited && time.Until(end) <= d {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// errorWithRemedy returns an error that says what to do.
func errorWithRemedy(err error, resource schema.GroupVersionResource) error {
	switch {
	case apierrors.IsNotFound(err):
		return ErrNotFound
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: grant get and update on %s/scale of group %q (actuator and scaleTargets of the chart), or see what refused it: %w",
			ErrForbidden, resource.Resource, resource.Group, err)
	}
	return err
}
