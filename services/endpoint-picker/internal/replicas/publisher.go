package replicas

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"fairlead.dev/pkg/wake"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

// maxPending is the maximum number of bytes that wait for all readers of all pools: more than 30 s of a thousand requests a second with
// prompts of a thousand tokens.
const maxPending = 32 << 20

// pendingBytes counts what waits for the readers of all pools. While it is over half of the limit, no reader may have more than its equal
// part of the other half, so that all of them together stay within the limit. It is safe for concurrent use.
type pendingBytes struct {
	limit   int64
	bytes   atomic.Int64
	readers atomic.Int64
}

// isOver reports whether a reader has too much that waits, if it has so many bytes.
func (p *pendingBytes) isOver(bytes int) bool {
	return p.bytes.Load() > p.limit/2 && int64(bytes) > p.limit/2/max(p.readers.Load(), 1)
}

// publisher passes the events of one pool to its readers. It implements estimate.Publisher.
type publisher struct {
	now     func() time.Duration // since the start
	pending *pendingBytes        // of all publishers
	reading atomic.Int32         // number of readers
	sent    atomic.Int64         // events, counted once for each reader
	slow    atomic.Int64         // readers that were disconnected because they were too slow
	places  *places              // of readers
	ended   chan struct{}        // closed when no event follows

	mu      sync.Mutex
	readers map[*reader]struct{}
	frame   []byte
}

// reader is one reader of the events.
type reader struct {
	client netip.Addr
	wake   wake.Signal // something is pending

	// Guarded by publisher.mu.
	pending []byte
	slow    bool // it has too many: nothing follows
}

func newPublisher(now func() time.Duration, pending *pendingBytes) *publisher {
	return &publisher{
		now: now, pending: pending, places: newPlaces(maxReaders, maxReadersOfClient), ended: make(chan struct{}),
		readers: map[*reader]struct{}{},
	}
}

// PublishEvent implements estimate.Publisher.
func (p *publisher) PublishEvent(e estimate.Event) {
	if p.reading.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frame = appendEvent(p.frame[:0], p.now(), e)
	for r := range p.readers {
		if r.slow = r.slow || p.pending.isOver(len(r.pending)+len(p.frame)); r.slow {
			p.freeReader(r)
		} else {
			r.pending = append(r.pending, p.frame...)
			p.pending.bytes.Add(int64(len(p.frame)))
			p.sent.Add(1)
		}
		r.wake.Send()
	}
}

// freeReader drops what waits for a reader.
func (p *publisher) freeReader(r *reader) {
	p.pending.bytes.Add(-int64(len(r.pending)))
	r.pending = nil
}

// openReader adds a reader of a client, which gets all later events. It returns false if there are too many, in all or of this client.
func (p *publisher) openReader(client netip.Addr) (*reader, bool) {
	if !p.places.takePlace(client) {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r := &reader{client: client, wake: wake.NewSignal()}
	p.readers[r] = struct{}{}
	p.pending.readers.Add(1)
	p.reading.Store(int32(len(p.readers)))
	return r, true
}

func (p *publisher) closeReader(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
	p.places.freePlace(r.client)
	p.freeReader(r)
	p.pending.readers.Add(-1)
	p.reading.Store(int32(len(p.readers)))
	if r.slow {
		p.slow.Add(1)
	}
}

// takeFrames returns the pending frames in exchange for an empty buffer. It returns false if the reader is too slow.
func (p *publisher) takeFrames(r *reader, empty []byte) (frames []byte, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.slow {
		return nil, false
	}
	p.pending.bytes.Add(-int64(len(r.pending)))
	frames, r.pending = r.pending, empty[:0]
	return frames, true
}
