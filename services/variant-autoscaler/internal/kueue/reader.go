// Package kueue reads the LocalQueues of Kueue that variants name. Tenants create LocalQueues, as many as they like: so the program watches
// none, and reads those that it needs in each pass, within bounds.
package kueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

const (
	// maxReads bounds the LocalQueues of a pass, and maxOfNamespace those of a namespace. Usual namespaces have one to five.
	maxReads       = 512
	maxOfNamespace = 32
	// readTime is the time of a pass for all of them.
	readTime = 10 * time.Second
)

// Errors of a Read.
var (
	// ErrNotFound means that the LocalQueue does not exist.
	ErrNotFound = errors.New("it does not exist")
	// ErrTooMany means that variants name too many LocalQueues.
	ErrTooMany = fmt.Errorf("a pass reads at most %d LocalQueues, and %d of a namespace: let variants share them", maxReads, maxOfNamespace)
)

// Read returns a LocalQueue. For one name, it returns the same pointer in a pass.
type Read func(name cache.ObjectName) (*inventory.LocalQueue, error)

// Reader reads LocalQueues. One goroutine may use it.
type Reader struct {
	client dynamic.Interface
	last   map[cache.ObjectName]*inventory.LocalQueue
}

// NewReader returns a Reader.
func NewReader(client dynamic.Interface) *Reader {
	return &Reader{client: client, last: map[cache.ObjectName]*inventory.LocalQueue{}}
}

// readResult is the result of a Read.
type readResult struct {
	queue *inventory.LocalQueue
	err   error
}

// BeginPass returns the Read of one pass. If a read fails for a moment, Read returns the LocalQueue of the pass before. end forgets
// LocalQueues that the pass did not ask for.
func (r *Reader) BeginPass(ctx context.Context) (read Read, end func()) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	answers, counts, seen := map[cache.ObjectName]readResult{}, map[string]int{}, map[cache.ObjectName]*inventory.LocalQueue{}
	total := 0
	return func(name cache.ObjectName) (*inventory.LocalQueue, error) {
			if a, found := answers[name]; found {
				return a.queue, a.err
			}
			if total == maxReads || counts[name.Namespace] == maxOfNamespace {
				return nil, ErrTooMany
			}
			total, counts[name.Namespace] = total+1, counts[name.Namespace]+1
			a := r.readQueue(ctx, name)
			if isTransient(a.err) && r.last[name] != nil {
				a = readResult{queue: r.last[name]}
			}
			if answers[name] = a; a.queue != nil {
				seen[name] = a.queue
			}
			return a.queue, a.err
		}, func() {
			cancel()
			r.last = seen
		}
}

// readQueue asks for the preferred version first. A cluster that does not serve it answers as for a LocalQueue that does not exist.
func (r *Reader) readQueue(ctx context.Context, name cache.ObjectName) readResult {
	for _, resource := range informers.LocalQueueResources() {
		u, err := r.client.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return readResult{err: fmt.Errorf("grant get of localqueues (limiter.enabled of the chart): %w", err)}
		case err != nil:
			return readResult{err: fmt.Errorf("read it: %w", err)}
		}
		return readResult{queue: localQueue(u, name)}
	}
	return readResult{err: ErrNotFound}
}

func localQueue(u *unstructured.Unstructured, name cache.ObjectName) *inventory.LocalQueue {
	q := informers.ReadLocalQueue(u)
	q.Namespace, q.Name = name.Namespace, name.Name
	return q
}

// isTransient reports whether a later Read can succeed although nobody changes anything.
func isTransient(err error) bool {
	return err != nil && !errors.Is(err, ErrNotFound) && !apierrors.IsForbidden(err)
}
