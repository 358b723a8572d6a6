package mirror

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/upstream"
)

const (
	// nodesTimeout is how long a slice waits for Nodes that are as new. Nodes of a pool are read within a second; a dead connection is
	// noticed after 10 s.
	nodesTimeout = 10 * time.Second
	// nodesRetry is the shortest pause between attempts.
	nodesRetry = 500 * time.Millisecond
	// nodesRetryAfter is the time without waits after a wait that timed out: slices must not stand still because Nodes cannot be read.
	nodesRetryAfter = time.Minute
)

// nodeFreshness makes slices wait for the Nodes of their endpoints, which come by another watch. When a node turns silent, the control
// plane changes the Node first, and its slices some milliseconds later. After an outage, the events of both watches arrive at once, in any
// order. An endpoint that is shown unready for a millisecond can be without requests for seconds: Traefik applies one change, and the next
// one 2 s later.
type nodeFreshness struct {
	nodes *upstream.Reflector
	// turnsUnready reports whether an endpoint in a slice would be shown unready, as far as Nodes are known.
	turnsUnready func(slice []byte) bool
	gaveUpAt     atomic.Pointer[time.Time]
	log          *zap.Logger
}

// freshnessWait returns what blocks a reflector until other stores are as new as what it is about to store.
func (m *Mirror) freshnessWait(r allowlist.Resource) func(ctx context.Context, object []byte, rv uint64) error {
	if r.Filter != allowlist.EndpointSlices {
		return nil
	}
	return m.freshness.waitForNodes
}

// waitForNodes returns when Nodes are as new as a slice of this version, or as a list of slices (nil).
func (n *nodeFreshness) waitForNodes(ctx context.Context, slice []byte, rv uint64) error {
	if since := n.gaveUpAt.Load(); since != nil && time.Since(*since) < nodesRetryAfter {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, nodesTimeout)
	defer cancel()
	for slice == nil || n.turnsUnready(slice) {
		err := n.nodes.ConfirmAt(limited, rv)
		if err == nil {
			return nil
		}
		select {
		case <-limited.Done():
			if ctx.Err() != nil { // it ends limited, too: nothing is known of Nodes then
				return ctx.Err()
			}
			n.giveUp(err)
			return nil
		case <-time.After(max(nodesRetry, upstream.RetryAfter(err))):
		}
	}
	return nil
}

func (n *nodeFreshness) giveUp(cause error) {
	now := time.Now()
	n.gaveUpAt.Store(&now)
	n.log.Warn("Could not list Nodes; unready endpoints are shown as reported",
		zap.Duration("waited", nodesTimeout), zap.Duration("retryAfter", nodesRetryAfter), zap.Error(cause))
}
