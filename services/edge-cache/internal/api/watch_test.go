package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/metrics"
	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/upstream"
	"fairlead.dev/services/edge-cache/internal/wire"
)

const (
	thing      = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"default","name":"a","resourceVersion":"%d"%s}}`
	thingsPath = "/apis/example.com/v1/things"
)

// edge is the API of a cache with one kind, of which there is one thing at version 10. It is also its API server, and counts.
type edge struct {
	t       *testing.T
	things  *store.Store
	client  *http.Client
	online  bool
	confirm func(ctx context.Context) error

	mu          sync.Mutex
	unconfirmed int
	ended       map[string]int
}

func newEdge(t *testing.T) *edge {
	t.Helper()
	e := &edge{t: t, ended: map[string]int{}, online: true, confirm: func(context.Context) error { return nil }}
	e.things = store.New(store.Params{
		ID: "things", Format: wire.JSON, Journal: e, Observer: metrics.New(prometheus.NewRegistry()), Log: zap.NewNop(),
	})
	replacement := e.things.BeginReplacement()
	require.NoError(t, replacement.AddObject(fmt.Appendf(nil, thing, 10, "")))
	require.NoError(t, replacement.Commit(10))
	e.things.SetObjectType("example.com/v1", "Thing")
	e.client = serveHTTP2(t, New(Params{
		Stores: []ServedStore{{
			Resource: allowlist.Resource{Group: "example.com", Version: "v1", Name: "things", Custom: true}, Store: e.things,
			Confirm: func(ctx context.Context) error { return e.confirm(ctx) },
		}},
		Token: "t", Backend: e, Observer: e, Log: zap.NewNop(), Limits: DefaultLimits(),
	}))
	return e
}

func (*edge) Append(...store.Record) error  { return nil }
func (e *edge) IsOnline() bool              { return e.online }
func (*edge) CountRequest(_, _, _ string)   {}
func (*edge) AddWatches(int)                {}
func (e *edge) CountUnconfirmedRead(string) { e.unconfirmed++ }
func (e *edge) CountWatchEnd(reason string) { e.mu.Lock(); defer e.mu.Unlock(); e.ended[reason]++ }
func (e *edge) endedWatches(reason string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ended[reason]
}

func (*edge) Do(context.Context, upstream.Request) (*http.Response, error) {
	return nil, errors.New("nothing is passed on")
}

func (e *edge) get(query string) *http.Response {
	e.t.Helper()
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, "http://cache"+thingsPath+"?"+query, nil)
	require.NoError(e.t, err)
	request.Header.Set("Authorization", "Bearer t")
	response, err := e.client.Do(request)
	require.NoError(e.t, err)
	return response
}

// timed is an event, and when it came.
type timed struct {
	Type   string `json:"type"`
	Object struct {
		Metadata struct {
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"object"`

	after time.Duration
}

// read returns the events of a watch until it ends, or until enough returns true.
func read(t *testing.T, response *http.Response, enough func(all []timed) bool) []timed {
	t.Helper()
	defer response.Body.Close()
	begin := time.Now()
	var all []timed
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		var e timed
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		e.after = time.Since(begin)
		if all = append(all, e); enough(all) {
			break
		}
	}
	return all
}

func never([]timed) bool { return false }

// TestTimeLimitOfAWatch opens a watch for four seconds. It gets a bookmark after the initial events, and one two seconds before the end.
func TestTimeLimitOfAWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t)
		begin := time.Now()
		events := read(t,
			e.get("watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=4"), never)
		assert.Equal(t, 4*time.Second, time.Since(begin))
		require.Len(t, events, 3)
		assert.Equal(t, "ADDED", events[0].Type)
		for i, want := range []time.Duration{0, 2 * time.Second} {
			assert.Equal(t, "BOOKMARK", events[i+1].Type)
			assert.Equal(t, want, events[i+1].after)
		}
		assert.Equal(t, "true", events[1].Object.Metadata.Annotations[wire.InitialEventsEnd])
		assert.Empty(t, events[2].Object.Metadata.Annotations)
		synctest.Wait()
		assert.Equal(t, 1, e.endedWatches(reasonTimeout))
	})
}

// TestBookmarksOfAnIdleWatch waits ten minutes. There is a bookmark at least every minute.
func TestBookmarksOfAnIdleWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t)
		require.NoError(t, e.things.ApplyBookmark(20)) // changes of other kinds
		events := read(t, e.get("watch=true&resourceVersion=10&allowWatchBookmarks=true"),
			func(all []timed) bool { return all[len(all)-1].after > 10*time.Minute })
		last := time.Duration(0)
		for _, ev := range events {
			assert.Equal(t, "BOOKMARK", ev.Type)
			assert.Equal(t, "20", ev.Object.Metadata.ResourceVersion)
			assert.Less(t, ev.after-last, time.Minute)
			assert.Greater(t, ev.after-last, 30*time.Second)
			last = ev.after
		}
	})
}

// TestWaitsOfLists bounds the time of each list that waits for something. What is stored is served, and only a version that does not exist
// yet is an error.
func TestWaitsOfLists(t *testing.T) {
	t.Parallel()
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	tests := []struct {
		name            string
		query           string
		offline         bool
		confirm         func(ctx context.Context) error
		want            int
		wantAfter       time.Duration
		wantUnconfirmed int
	}{
		{name: "the newest state, confirmed", want: http.StatusOK},
		{name: "any state", query: "resourceVersion=0", confirm: silent, want: http.StatusOK},
		{
			name: "the newest state of an API server that is offline", offline: true, confirm: silent, want: http.StatusOK,
			wantUnconfirmed: 1,
		},
		{
			name: "the newest state of an API server that fails", confirm: func(context.Context) error { return errors.New("500") },
			want: http.StatusOK, wantUnconfirmed: 1,
		},
		{
			name: "the newest state, while the watch sends nothing", confirm: silent, want: http.StatusOK, wantAfter: 3 * time.Second,
			wantUnconfirmed: 1,
		},
		{
			name: "a version that does not exist yet", query: "resourceVersion=99&resourceVersionMatch=NotOlderThan",
			want: http.StatusGatewayTimeout, wantAfter: 3 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEdge(t)
				e.online = !tt.offline
				if tt.confirm != nil {
					e.confirm = tt.confirm
				}
				begin := time.Now()
				response := e.get(tt.query)
				defer response.Body.Close()
				assert.Equal(t, tt.want, response.StatusCode)
				assert.Equal(t, tt.wantAfter, time.Since(begin))
				assert.Equal(t, tt.wantUnconfirmed, e.unconfirmed)
			})
		})
	}
}

// TestWatchThatIsNotRead opens two watches, and reads only one. That one gets each change at once; the other one is ended after the time of
// a write.
func TestWatchThatIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEdge(t)
		fast := e.get("watch=true&resourceVersion=10")
		slow := e.get("watch=true&resourceVersion=10")
		defer slow.Body.Close()
		begin := time.Now()
		const changes = 24
		large := `,"annotations":{"x":"` + strings.Repeat("x", 256<<10) + `"}` // a few of them are more than the window of a stream
		read := bufio.NewScanner(fast.Body)
		read.Buffer(nil, 1<<20)
		for i := range changes {
			require.NoError(t, e.things.PutObject(fmt.Appendf(nil, thing, 11+i, large)))
			require.True(t, read.Scan())
			require.Contains(t, read.Text(), fmt.Sprintf(`"resourceVersion":"%d"`, 11+i))
			require.Zero(t, time.Since(begin), "the watch that is not read holds the other one up")
		}
		assert.Zero(t, e.endedWatches(reasonSlow))
		time.Sleep(DefaultLimits().WriteTimeout + time.Millisecond)
		synctest.Wait()
		assert.Equal(t, 1, e.endedWatches(reasonSlow))
		require.NoError(t, e.things.PutObject(fmt.Appendf(nil, thing, 11+changes, "")))
		require.True(t, read.Scan(), "the other watch stays open")
		fast.Body.Close()
	})
}
