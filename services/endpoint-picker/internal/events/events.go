// Package events makes Events of the InferencePool for those who operate it: what they should know and can act upon, with a
// fixed reason each. They are few, so each is created when it happens and none is counted up.
package events

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	component = "fairlead-endpoint-picker"
	timeout   = 5 * time.Second
)

// pools is where the pool is found.
type pools interface {
	// PoolReference returns what Events refer to; without a UID if the pool is not known.
	PoolReference() corev1.ObjectReference
}

// Reporter makes Events.
type Reporter struct {
	client   kubernetes.Interface
	pools    pools
	instance string
	clock    clock.PassiveClock
}

// Params is what a Reporter is made of.
type Params struct {
	Client   kubernetes.Interface
	Pools    pools
	Instance string // name of this picker's pod
	Clock    clock.PassiveClock
}

// NewReporter returns a Reporter.
func NewReporter(p Params) *Reporter {
	return &Reporter{client: p.Client, pools: p.Pools, instance: p.Instance, clock: p.Clock}
}

// Report creates one Event of the pool. The kind is Normal or Warning.
func (r *Reporter) Report(ctx context.Context, kind, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pool, now := r.pools.PoolReference(), metav1.NewTime(r.clock.Now())
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: pool.Namespace, GenerateName: pool.Name + "."},
		InvolvedObject:      pool,
		Type:                kind,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: component, Host: r.instance},
		ReportingController: component,
		ReportingInstance:   r.instance,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	if _, err := r.client.CoreV1().Events(pool.Namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create event %s of InferencePool %s/%s: %w", reason, pool.Namespace, pool.Name, err)
	}
	return nil
}
