package replicas

import (
	"errors"
	"net/http"
	"time"

	"fairlead.dev/pkg/connlimit"
)

// Resources, and their parameter.
const (
	eventsPath   = "/v1/events"
	contentsPath = "/v1/contents"
	paramPool    = "pool"
)

// Headers of the protocol.
const (
	headerProtocol = "Fairlead-Replica-Protocol"
	headerInstance = "Fairlead-Replica-Instance"
)

// protocol is the version of the protocol. Replicas with another one tell each other nothing.
const protocol = "4"

const (
	// linger is the time in which a server collects events before it writes them. In package simulation, a delay of 1 ms costs 0 to 5 % of
	// the mean time to first token of two replicas, 5 ms up to 17 %.
	linger = 500 * time.Microsecond
	// heartbeat is the time between two frames of a silent server. A follower gives up after silence.
	heartbeat = time.Second
	// writeTimeout is the time for a reader to accept a write.
	writeTimeout = 10 * time.Second
	// maxReaders is the maximum number of readers of a pool: more replicas than a pool has. Each reader costs a copy of each event.
	maxReaders = 64
	// maxReadersOfClient is the maximum number of readers of a pool with one IP address. A replica has an address of its own and one
	// reader. After a restart with the same address, or when its connection broke, the old reader stays until writeTimeout. Loopback
	// addresses are those of the sidecar of a service mesh, which all replicas share.
	maxReadersOfClient = 4
	// maxKept is the capacity of a buffer that a reader keeps: 1 MiB.
	maxKept = 1 << 20
)

var errSlowReader = errors.New("the reader is too slow")

// ServeHTTP serves the events of a pool, or its contents.
func (n *Node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != eventsPath && r.URL.Path != contentsPath || r.Method != http.MethodGet {
		http.Error(w, "the resources are GET "+eventsPath+" and "+contentsPath, http.StatusNotFound)
		return
	}
	w.Header().Set(headerProtocol, protocol)
	w.Header().Set(headerInstance, n.instance)
	if got := r.Header.Get(headerProtocol); got != protocol {
		http.Error(w, "this replica has version "+protocol+" of the protocol", http.StatusUpgradeRequired)
		return
	}
	if r.Header.Get(headerInstance) == n.instance {
		http.Error(w, "this replica is the reader itself", http.StatusConflict)
		return
	}
	m := n.memberOf(r.URL.Query().Get(paramPool))
	if m == nil {
		http.Error(w, "this replica does not serve the pool", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	out := &writer{node: n, response: w, control: http.NewResponseController(w)}
	if r.URL.Path == contentsPath {
		out.serveContents(r, m)
		return
	}
	reader, ok := m.publisher.openReader(connlimit.ClientOf(r))
	if !ok {
		http.Error(w, "too many readers", http.StatusServiceUnavailable)
		return
	}
	defer m.publisher.closeReader(reader)
	_ = out.writeEvents(r.Context().Done(), m.publisher, reader)
}

// writer writes frames to one reader.
type writer struct {
	node     *Node
	response http.ResponseWriter
	control  *http.ResponseController
	ends     time.Time // when all must be written; zero for never
}

// writeFrames writes frames, and the time.
func (o *writer) writeFrames(frames []byte) error {
	deadline := time.Now().Add(writeTimeout)
	if !o.ends.IsZero() {
		deadline = o.ends
	}
	_ = o.control.SetWriteDeadline(deadline) // not supported by recorders in tests
	clock := appendClock(make([]byte, 0, 16), o.node.elapsedTime())
	if _, err := o.response.Write(clock); err != nil {
		return err
	}
	if _, err := o.response.Write(frames); err != nil { //nolint:gosec // frames are numbers of this process, and no page
		return err
	}
	return o.control.Flush()
}

// writeEvents writes events until the reader is gone, or no event follows.
func (o *writer) writeEvents(done <-chan struct{}, p *publisher, r *reader) error {
	silent := time.NewTicker(heartbeat)
	defer silent.Stop()
	var buffer []byte
	for {
		if err := o.writeFrames(buffer); err != nil {
			return err
		}
		if cap(buffer) > maxKept {
			buffer = nil
		}
		select {
		case <-done:
			return nil
		case <-p.ended:
			return nil
		case <-silent.C:
			buffer = buffer[:0]
			continue
		case <-r.wake:
		}
		time.Sleep(linger)
		frames, ok := p.takeFrames(r, buffer)
		if !ok {
			return errSlowReader
		}
		buffer = frames
	}
}
