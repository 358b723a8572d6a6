package informers

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/inventory"
)

const (
	// maxQueueReads bounds the LocalQueues of a pass, and maxQueuesOfNamespace those of a namespace. Usual namespaces have one to five.
	maxQueueReads        = 512
	maxQueuesOfNamespace = 32
	// queueReadTime is the time of a pass for all of them.
	queueReadTime = 10 * time.Second
)

// Errors of a ReadQueue.
var (
	// ErrQueueNotFound means that the LocalQueue does not exist.
	ErrQueueNotFound = errors.New("it does not exist")
	// ErrTooManyQueues means that variants name too many LocalQueues.
	ErrTooManyQueues = fmt.Errorf("a pass reads at most %d LocalQueues, and %d of a namespace: let variants share them", maxQueueReads, maxQueuesOfNamespace)
)

// ReadQueue returns a LocalQueue. For one name, it returns the same pointer in a pass.
type ReadQueue func(name cache.ObjectName) (*inventory.LocalQueue, error)

// QueueReader reads the LocalQueues of Kueue that variants name. Tenants create LocalQueues, as many as they like: so the program watches
// none, and reads those that it needs in each pass, within bounds. One goroutine may use it.
type QueueReader struct {
	client dynamic.Interface
	last   map[cache.ObjectName]*inventory.LocalQueue
}

// NewQueueReader returns a QueueReader.
func NewQueueReader(client dynamic.Interface) *QueueReader {
	return &QueueReader{client: client, last: map[cache.ObjectName]*inventory.LocalQueue{}}
}

// queueResult is the result of a ReadQueue.
type queueResult struct {
	queue *inventory.LocalQueue
	err   error
}

// BeginPass returns the ReadQueue of one pass. If a read fails for a moment, it returns the LocalQueue of the pass before. end forgets
// LocalQueues that the pass did not ask for.
func (r *QueueReader) BeginPass(ctx context.Context) (read ReadQueue, end func()) {
	ctx, cancel := context.WithTimeout(ctx, queueReadTime)
	answers, counts, seen := map[cache.ObjectName]queueResult{}, map[string]int{}, map[cache.ObjectName]*inventory.LocalQueue{}
	total := 0
	return func(name cache.ObjectName) (*inventory.LocalQueue, error) {
			if a, found := answers[name]; found {
				return a.queue, a.err
			}
			if total == maxQueueReads || counts[name.Namespace] == maxQueuesOfNamespace {
				return nil, ErrTooManyQueues
			}
			total, counts[name.Namespace] = total+1, counts[name.Namespace]+1
			a := r.readQueue(ctx, name)
			if isTransient(a.err) && r.last[name] != nil {
				a = queueResult{queue: r.last[name]}
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
func (r *QueueReader) readQueue(ctx context.Context, name cache.ObjectName) queueResult {
	for _, resource := range LocalQueueResources() {
		u, err := r.client.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			return queueResult{err: fmt.Errorf("grant get of localqueues (limiter.enabled of the chart): %w", err)}
		case err != nil:
			return queueResult{err: fmt.Errorf("read it: %w", err)}
		}
		return queueResult{queue: ReadLocalQueue(u)}
	}
	return queueResult{err: ErrQueueNotFound}
}

// isTransient reports whether a later read can succeed although nobody changes anything.
func isTransient(err error) bool {
	return err != nil && !errors.Is(err, ErrQueueNotFound) && !apierrors.IsForbidden(err)
}
