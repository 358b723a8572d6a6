package estimate

import (
	"sync"
)

// batchSize learns the maximum number of requests that a server runs at once: the highest running count seen, on at least
// batchPages pages that also showed a queue. If KV cache memory is the limit, the count varies, and no size is learned.
type batchSize struct {
	mu      sync.Mutex // serializes writers
	pages   int        // that showed most and a queue
	queues  int        // pages with a queue since the highest count was last confirmed or lowered
	highest float64    // on those pages
	most    atomicFloat
	size    atomicFloat // learned size of the batch; 0 if unknown
}

// observePage records the values of a page.
func (b *batchSize) observePage(running, waiting float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	most := b.most.Load()
	switch {
	case running > most:
		b.resetLearning(running)
	case waiting <= 0:
	case running == most:
		b.queues, b.highest = 0, 0
		if b.pages++; b.pages == batchPages {
			b.size.Store(most)
		}
	default: // the engine may have been restarted with a smaller batch, or the highest count was an error of a page
		b.highest = max(b.highest, running)
		if b.queues++; b.queues == batchMemory {
			b.resetLearning(b.highest)
		}
	}
}

// resetLearning begins to learn with another highest count.
func (b *batchSize) resetLearning(most float64) {
	b.pages, b.queues, b.highest = 0, 0, 0
	b.most.Store(most)
	b.size.Store(0)
}

// excessRequests returns the number of requests without a place in the batch; 0 while its size is unknown.
func (b *batchSize) excessRequests(requests float64) float64 {
	size := b.size.Load()
	if size == 0 {
		return 0
	}
	return max(requests-size, 0)
}
