package replicas

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

const (
	// contentsWait is the time that a request for contents waits for others: less than headerTimeout.
	contentsWait = 3 * time.Second
	// contentsTimeout is the time to write contents. A new replica does not wait for longer (warmTimeout).
	contentsTimeout = warmTimeout
	// maxContents is the number of contents that are written at a time, to different clients. Each takes up to 20 MiB.
	maxContents = 4
	// maxAsking is the number of requests for the contents of a pool that wait or are answered.
	maxAsking = 16
	// contentsRest is the time in which no index is read, as a multiple of the time that the last reading took: picks wait for the index
	// meanwhile.
	contentsRest = 9
	// contentsPiece is the size of a write of contents: a few writes for each megabyte.
	contentsPiece = 256 << 10
)

// serveContents answers with the contents of the index of prefixes.
func (o *writer) serveContents(r *http.Request, m *Member) {
	n, client := m.node, connlimit.ClientOf(r)
	if !m.asking.takePlace(client) {
		o.refuseContents()
		return
	}
	defer m.asking.freePlace(client)
	waiting, cancel := context.WithTimeout(r.Context(), contentsWait)
	defer cancel()
	end := n.turns.waitForTurn(waiting, client)
	if end == nil {
		o.refuseContents()
		return
	}
	defer end()
	var contents []estimate.Event
	if !n.turns.readIndex(waiting, func() { contents = m.estimator.Contents(m.snapshots.Snapshot().Endpoints) }) {
		o.refuseContents()
		return
	}
	o.ends = time.Now().Add(contentsTimeout)
	_ = o.writeContents(contents) // an error means that the connection has ended, or does not read
}

func (o *writer) refuseContents() {
	http.Error(o.response, "other replicas get the contents now", http.StatusServiceUnavailable)
}

// writeContents writes the contents of an index.
func (o *writer) writeContents(all []estimate.Event) error {
	var piece []byte
	for _, e := range all {
		if piece = appendEvent(piece, o.node.elapsedTime(), e); len(piece) >= contentsPiece {
			if err := o.writeFrames(piece); err != nil {
				return err
			}
			piece = piece[:0]
		}
	}
	return o.writeFrames(appendFrame(piece, &Frame{Kind: Kind_COMPLETE}))
}

// turns decide who gets contents, and when: one client at a time gets one, up to maxContents clients do at the same time, and an
// index is read for a tenth of the time at most. All pools share them.
type turns struct {
	writing chan struct{} // has an element for each client that gets contents
	reading chan struct{} // has an element while an index is read
	rested  time.Time     // when the next reading may begin; of the one that has reading

	mu      sync.Mutex
	clients map[netip.Addr]*client
}

// client is a client that waits for contents, or gets them.
type client struct {
	requests int
	turn     chan struct{} // has an element while one of its requests has its turn
}

func newTurns() *turns {
	return &turns{writing: make(chan struct{}, maxContents), reading: make(chan struct{}, 1), clients: map[netip.Addr]*client{}}
}

// waitForTurn waits for the turn of a client, and returns a function that ends it; nil if ctx ends before.
func (t *turns) waitForTurn(ctx context.Context, address netip.Addr) (end func()) {
	c := t.addClient(address)
	if !waitForSlot(ctx, c.turn) {
		t.removeClient(address)
		return nil
	}
	if !waitForSlot(ctx, t.writing) {
		<-c.turn
		t.removeClient(address)
		return nil
	}
	return func() {
		<-t.writing
		<-c.turn
		t.removeClient(address)
	}
}

// readIndex calls read, which reads an index, when nobody else does and the last reading was long enough ago. It returns false if ctx ends
// before.
func (t *turns) readIndex(ctx context.Context, read func()) bool {
	if !waitForSlot(ctx, t.reading) {
		return false
	}
	defer func() { <-t.reading }()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(t.rested)):
	}
	began := time.Now()
	read()
	now := time.Now()
	t.rested = now.Add(contentsRest * now.Sub(began))
	return true
}

func (t *turns) addClient(address netip.Addr) *client {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[address]
	if c == nil {
		c = &client{turn: make(chan struct{}, 1)}
		t.clients[address] = c
	}
	c.requests++
	return c
}

func (t *turns) removeClient(address netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.clients[address]
	if c.requests--; c.requests == 0 {
		delete(t.clients, address)
	}
}

// waitForSlot adds an element to a channel. It returns false if ctx ends before there is room.
func waitForSlot(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
