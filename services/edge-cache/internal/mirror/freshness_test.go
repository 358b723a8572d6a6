package mirror

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/references"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// lists answers lists of Nodes.
type lists struct {
	code  int
	asked int
}

func (l *lists) RoundTrip(r *http.Request) (*http.Response, error) {
	l.asked++
	return &http.Response{
		StatusCode: l.code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
		Body: io.NopCloser(strings.NewReader(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"20"},"items":[]}`)),
	}, nil
}

type noJournal struct{}

func (noJournal) Append(...store.Record) error { return nil }

// TestSlicesWaitForNodes refuses lists of Nodes. An endpoint waits 10 s before it turns unready; for the next minute none waits. Nodes that
// can be read cost no time.
func TestSlicesWaitForNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &lists{code: http.StatusInternalServerError}
		c, err := upstream.New(upstream.Params{Log: zap.NewNop(), Metrics: metrics.New(prometheus.NewRegistry()), Config: &rest.Config{
			Host: "http://api.example", WrapTransport: func(http.RoundTripper) http.RoundTripper { return server },
		}})
		require.NoError(t, err)
		nodes := store.New(store.Params{
			ID: "v1/nodes", Format: wire.JSON, Journal: noJournal{}, Observer: metrics.New(prometheus.NewRegistry()), Log: zap.NewNop(),
		})
		require.NoError(t, nodes.BeginReplacement().Commit(10))
		turnsUnready := true
		n := &nodeFreshness{
			nodes: upstream.NewReflector(upstream.ReflectorParams{
				Connection: c, Store: nodes, Path: "/api/v1/nodes", Log: zap.NewNop(),
			}),
			turnsUnready: func([]byte) bool { return turnsUnready }, log: zap.NewNop(),
		}
		wait := func() time.Duration {
			begin := time.Now()
			require.NoError(t, n.waitForNodes(t.Context(), []byte("slice"), 15))
			return time.Since(begin)
		}
		assert.Equal(t, 10*time.Second, wait())
		assert.LessOrEqual(t, server.asked, int(nodesTimeout/nodesRetry)+1)
		asked := server.asked
		time.Sleep(nodesRetryAfter - nodesTimeout)
		assert.Zero(t, wait(), "within a minute after a wait in vain")
		assert.Equal(t, asked, server.asked)
		time.Sleep(nodesRetryAfter)
		assert.Equal(t, nodesTimeout, wait(), "after it")

		time.Sleep(2 * nodesRetryAfter)
		server.code = http.StatusOK
		assert.Zero(t, wait(), "Nodes can be read")
		assert.Zero(t, wait(), "and are new enough")
		turnsUnready, server.code = false, http.StatusInternalServerError
		asked = server.asked
		require.NoError(t, n.waitForNodes(t.Context(), []byte("slice"), 99))
		assert.Equal(t, asked, server.asked, "nothing turns unready")

		turnsUnready = true
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		lost := n.gaveUpAt.Load()
		require.ErrorIs(t, n.waitForNodes(ended, []byte("slice"), 99), context.Canceled, "nothing must be stored")
		assert.Equal(t, lost, n.gaveUpAt.Load(), "this was no wait in vain")
	})
}

// TestForget keeps nothing about names that no object has anymore: a tenant can write any number of them, one after the other.
func TestForget(t *testing.T) {
	t.Parallel()
	gone, wanted := references.Target{Kind: allowlist.Secrets, Key: "a/gone"}, references.Target{Kind: allowlist.Secrets, Key: "a/wanted"}
	m := Mirror{unfetched: map[references.Target]references.Problem{gone: references.Missing, wanted: references.Unreadable}}
	m.forgetUnwanted([]references.Target{wanted})
	assert.Equal(t, map[references.Target]references.Problem{wanted: references.Unreadable}, m.unfetched)
}
