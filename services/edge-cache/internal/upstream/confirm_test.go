package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// server is an API server in memory.
type server func(r *http.Request) (code int, body string)

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	code, body := s(r)
	if code == 0 { // it never answers
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if code == http.StatusTooManyRequests {
		header.Set("Retry-After", "4")
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

const thing = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"default","name":"a","resourceVersion":"%d"}}`

// list is the answer to a list of one thing.
func list(rv, thingRV uint64) (int, string) {
	return http.StatusOK, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"ThingList","metadata":{"resourceVersion":"%d"},"items":[`+
		thing+`]}`, rv, thingRV)
}

type noJournal struct{}

func (noJournal) Append(...store.Record) error { return nil }

// newReflector returns a reflector of a store that has one thing, both at version 10.
func newReflector(t *testing.T, s server) (*Reflector, *store.Store) {
	t.Helper()
	c, err := New(Params{Log: zap.NewNop(), Metrics: metrics.New(prometheus.NewRegistry()), Config: &rest.Config{
		Host: "http://api.example", WrapTransport: func(http.RoundTripper) http.RoundTripper { return s },
	}})
	require.NoError(t, err)
	things := store.New(store.Params{
		ID: "example.com/v1/things", Format: wire.JSON, Journal: noJournal{}, Observer: metrics.New(prometheus.NewRegistry()),
		Log: zap.NewNop(),
	})
	replacement := things.BeginReplacement()
	require.NoError(t, replacement.AddObject(fmt.Appendf(nil, thing, 10)))
	require.NoError(t, replacement.Commit(10))
	return NewReflector(ReflectorParams{Connection: c, Store: things, Path: "/apis/example.com/v1/things", Log: zap.NewNop()}), things
}

// TestAPIServerThatDoesNotAnswer must not make a list of the newest state slow.
func TestAPIServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, _ := newReflector(t, func(*http.Request) (int, string) { return 0, "" })
		begin := time.Now()
		require.ErrorIs(t, r.ConfirmNewest(t.Context()), context.DeadlineExceeded)
		assert.Less(t, time.Since(begin), time.Second)
	})
}

// TestConfirmWaitsForTheWatch changes a thing. A list of the newest state waits for the event, and for as long as the caller wants.
func TestConfirmWaitsForTheWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		version := uint64(10)
		r, things := newReflector(t, func(*http.Request) (int, string) { return list(version, version) })
		begin := time.Now()
		require.NoError(t, r.ConfirmNewest(t.Context()))
		assert.Zero(t, time.Since(begin), "nothing is late")

		version = 12
		time.AfterFunc(time.Second, func() { assert.NoError(t, things.PutObject(fmt.Appendf(nil, thing, 12))) })
		require.NoError(t, r.ConfirmNewest(t.Context()))
		assert.Equal(t, time.Second, time.Since(begin), "the event ends the wait")

		version = 14
		begin = time.Now()
		limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		require.ErrorIs(t, r.ConfirmNewest(limited), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Second, time.Since(begin), "the watch sends nothing")
	})
}

// TestChangesOfOtherKinds raise the version of the API server again and again. They cost few lists, whoever waits for them.
func TestChangesOfOtherKinds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		version, lists := uint64(10), 0
		r, _ := newReflector(t, func(*http.Request) (int, string) { lists++; return list(version, 10) })
		begin := time.Now()
		for range 100 {
			version += 2
			require.NoError(t, r.ConfirmAt(t.Context(), version))
			require.NoError(t, r.ConfirmAt(t.Context(), version-1))
		}
		assert.Equal(t, 100, lists, "a list counts for all versions up to its own")
		assert.GreaterOrEqual(t, time.Since(begin), 99*minConfirmInterval)
	})
}

// TestPauseThatTheAPIServerAsksFor counts the requests to an API server that asks for a pause. Afterwards it is read.
func TestPauseThatTheAPIServerAsksFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		var tell atomic.Bool
		r, things := newReflector(t, func(r *http.Request) (int, string) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/kube-system"):
				return http.StatusOK, `{"metadata":{"uid":"one"}}`
			case !tell.Load():
				asked = append(asked, time.Now())
				return http.StatusTooManyRequests, "too many requests"
			case r.URL.Query().Get("watch") != "":
				event := fmt.Sprintf(`{"type":"MODIFIED","object":`+thing+"}\n", 12)
				return http.StatusOK, event
			}
			return list(10, 10)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		for i := 1; i < len(asked); i++ {
			assert.GreaterOrEqual(t, asked[i].Sub(asked[i-1]), 4*time.Second, strconv.Itoa(i))
		}
		assert.Greater(t, len(asked), 3)
		tell.Store(true)
		time.Sleep(2 * lastRetry)
		assert.Equal(t, uint64(12), things.Position())
		cancel()
		<-ended
	})
}
