package pool

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/golden"
	"fairlead.dev/pkg/memnet"
)

// world is a handler over pools that change, in a bubble.
type world struct {
	*HoldsHandler

	all atomic.Pointer[[]NamedQueue]
}

func newWorld(all ...NamedQueue) *world {
	w := &world{}
	w.all.Store(&all)
	w.HoldsHandler = NewHoldsHandler(func() []NamedQueue { return *w.all.Load() }, clock.RealClock{})
	return w
}

func newQueue() *Queue { return NewQueue(clock.RealClock{}) }

// wait adds a request that waits for a model until ctx ends.
func wait(ctx context.Context, q *Queue, l QueueLabels) {
	limits := QueueLimits{TTL: time.Hour, Requests: 1 << 20, Bytes: 1 << 30}
	go func() { _ = q.WaitForGrant(ctx, QueuedRequest{QueueLabels: l, Arrived: time.Now()}, limits) }()
	synctest.Wait()
}

// open begins a stream.
func open(t *testing.T, h http.Handler) *http.Response {
	t.Helper()
	listener := memnet.Listen()
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(listener) }()
	client := http.Client{Transport: &http.Transport{DialContext: listener.Dial}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://picker/v1/holds", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = response.Body.Close()
		_ = server.Close()
	})
	return response
}

// follow sends the lines of a stream to a channel, which is closed at its end.
func follow(t *testing.T, h http.Handler) <-chan string {
	t.Helper()
	response := open(t, h)
	assert.Equal(t, "application/x-ndjson", response.Header.Get("Content-Type"))
	return scan(response)
}

// scan sends the lines of a body to a channel, which is closed at its end.
func scan(response *http.Response) <-chan string {
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(response.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	synctest.Wait()
	return lines
}

// read returns the lines that have come.
func read(lines <-chan string) (all []string) {
	synctest.Wait()
	for len(lines) > 0 {
		all = append(all, <-lines)
	}
	return all
}

func TestStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, b := newQueue(), newQueue()
		w := newWorld(NamedQueue{Namespace: "ns", Name: "a", Queue: a}, NamedQueue{Namespace: "ns", Name: "b", Queue: b})
		lines := follow(t, w)
		assert.Equal(t, []string{`{"namespace":"ns","pool":"a","models":[]}`, `{"namespace":"ns","pool":"b","models":[]}`}, read(lines))

		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx, b, QueueLabels{Target: "m", Priority: 1})
		time.Sleep(10 * time.Millisecond)
		wait(ctx, b, QueueLabels{Target: "m"})
		wait(ctx, b, QueueLabels{Target: "l"})
		time.Sleep(40 * time.Millisecond)
		assert.Equal(t, []string{`{"namespace":"ns","pool":"b","models":[{"model":"l","waiting":1,"oldestSeconds":0.015},{"model":"m","waiting":2,"oldestSeconds":0.025}]}`}, read(lines))
		b.GrantNext(1)
		time.Sleep(time.Second)
		got := read(lines)
		require.Len(t, got, 1)
		assert.Contains(t, got[0], `{"model":"m","waiting":1,`)
		cancel()
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, []string{`{"namespace":"ns","pool":"b","models":[{"model":"l","waiting":0,"oldestSeconds":0},{"model":"m","waiting":0,"oldestSeconds":0}]}`}, read(lines))
		time.Sleep(heartbeat)
		assert.Equal(t, []string{""}, read(lines))
		w.all.Store(&[]NamedQueue{{Namespace: "ns", Name: "a", Queue: newQueue()}})
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, []string{`{"namespace":"ns","pool":"a","models":[]}`, `{"namespace":"ns","pool":"b","models":[]}`}, read(lines), "a is another pool now, and b is gone")
	})
}

// TestStreamForFollowers writes what a follower reads into a file, which the follower of the variant-autoscaler is tested with: the
// request, the head of the answer and the lines of the stream.
func TestStreamForFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chat, other := newQueue(), newQueue()
		w := newWorld(NamedQueue{Namespace: "models", Name: "chat", Queue: chat}, NamedQueue{Namespace: "models", Name: "other", Queue: other})
		mux := http.NewServeMux()
		mux.Handle(HoldsPattern, w)
		response := open(t, mux)
		text := HoldsPattern + "\n\n" + response.Proto + " " + response.Status + "\nContent-Type: " + response.Header.Get("Content-Type") + "\n\n"
		lines := scan(response)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			wait(ctx, chat, QueueLabels{Model: "alias", Target: "meta/llama-3.1-8b"})
		}
		wait(t.Context(), chat, QueueLabels{Target: "<\"\u00fc\n>"})
		wait(t.Context(), chat, QueueLabels{})    // a request without a model
		time.Sleep(time.Second + holdsInterval/2) // not at the moment of a look
		cancel()
		time.Sleep(time.Second)
		chat.GrantNext(2)
		time.Sleep(2 * heartbeat)
		w.all.Store(&[]NamedQueue{{Namespace: "models", Name: "chat", Queue: chat}})
		time.Sleep(time.Second)

		for _, line := range read(lines) {
			text += line + "\n"
		}
		golden.File(t, "testdata/stream.txt", []byte(text))
	})
}

// TestStream_OfALongLife goes on after the time limit of other answers.
func TestStream_OfALongLife(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lines := follow(t, newWorld())
		time.Sleep(20*time.Minute + time.Second)
		all := read(lines)
		assert.Len(t, all, 1+20*4)
		for _, text := range all {
			assert.Empty(t, text)
		}
	})
}

func TestTooManyFollowers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var streams []*http.Response
		for range maxFollowers {
			streams = append(streams, open(t, w))
		}
		assert.Equal(t, http.StatusOK, streams[0].StatusCode)
		assert.Equal(t, http.StatusServiceUnavailable, open(t, w).StatusCode)
		require.NoError(t, streams[0].Body.Close())
		synctest.Wait()
		assert.Equal(t, http.StatusOK, open(t, w).StatusCode)
	})
}

// TestLineOfManyModels has clients that invent models. The line keeps those that most requests wait for.
func TestLineOfManyModels(t *testing.T) {
	t.Parallel()
	var all []waitingModel
	for i := range 6000 {
		all = append(all, waitingModel{Model: fmt.Sprint(i, strings.Repeat("\x00", 250)), Waiting: 1})
	}
	all = append(all, waitingModel{Model: "true", Waiting: 2})
	text := formatLine(poolName{"ns", "pool"}, all)
	assert.LessOrEqual(t, len(text), maxLine+1024)
	assert.Contains(t, string(text), `{"model":"true","waiting":2,`)
}
