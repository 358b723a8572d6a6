package recorder

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	zaptest "go.uber.org/zap/zaptest/observer"
	"k8s.io/utils/clock"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/request"
)

// counts is what an observer was told.
type counts struct {
	mu      sync.Mutex
	written int
	lost    map[Loss]int
}

func (c *counts) RequestsRecorded(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.written += n
}

func (c *counts) RequestsLost(reason Loss, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost == nil {
		c.lost = map[Loss]int{}
	}
	c.lost[reason] += n
}

// rig is a Recorder in a bubble of package synctest.
type rig struct {
	*Recorder

	counts *counts
	logs   *zaptest.ObservedLogs
	stop   func()
}

func newRig(t *testing.T, path string) *rig {
	t.Helper()
	core, logs := zaptest.New(zap.DebugLevel)
	r := &rig{counts: &counts{}, logs: logs}
	r.Recorder = New(Params{Path: path, MaxBytes: 4 << 20, Log: zap.New(core), Observer: r.counts, Clock: clock.RealClock{}})
	return r
}

// start runs the Recorder until stop is called.
func (r *rig) start(t *testing.T) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	r.stop = func() {
		cancel()
		<-done
	}
	synctest.Wait()
	return r
}

func newEndpoint(n int) *endpoint.Endpoint {
	address := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 8000)
	return endpoint.New(endpoint.Description{Identity: endpoint.Identity{Namespace: "secret-ns", Pod: "secret-pod", Address: address}}, time.Now(), nil)
}

// answered is a streamed answer of a request for a prompt of 600 tokens.
func answered(e *endpoint.Endpoint) *request.Record {
	now := time.Now()
	return &request.Record{
		PickRecord: request.PickRecord{
			Model: "secret-model", Target: "secret-target",
			Rewrite: "secret-rewrite", Fairness: "secret-tenant", Objective: "secret-objective",
			Streaming: true, Endpoint: e,
			PromptTokens: 600, FixedTokens: 600, MatchedTokens: 512, PoolSize: 3,
			Prefixes: []uint64{11, 12},
		},
		Outcome: request.Completed, RequestID: "secret-id", TraceParent: "secret-trace", Path: "/secret-path", Served: "secret-served", Reason: "secret-reason",
		Status: 200, StartTime: now.Add(-2 * time.Second), ArrivalTime: now.Add(-1500 * time.Millisecond),
		FirstContent: now.Add(-time.Second), EndTime: now, ContentPieces: 9, Usage: request.Usage{Known: true, Prompt: 640, Output: 10, Cached: 500, CachedKnown: true},
	}
}

func readRecording(t *testing.T, path string) []RecordedRequest {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	var requests []RecordedRequest
	for lines := json.NewDecoder(file); lines.More(); {
		var r RecordedRequest
		require.NoError(t, lines.Decode(&r))
		requests = append(requests, r)
	}
	return requests
}

func TestRecording(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r.jsonl")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, path)
		time.Sleep(5 * time.Second)
		r.start(t)
		a, b := newEndpoint(1), newEndpoint(2)
		one, several := r.ForPool(""), r.ForPool("ns/second")
		one.ObserveRequest(answered(a))
		whole := answered(b)
		whole.Streaming, whole.Usage, whole.Outcome = false, request.Usage{Known: true, Output: 4}, request.Interrupted
		several.ObserveRequest(whole)
		failed := answered(a)
		failed.Status, failed.Usage, failed.ContentPieces, failed.FirstContent = 503, request.Usage{}, 0, time.Time{}
		one.ObserveRequest(failed)
		long := answered(b)
		long.FixedTokens, long.Usage = 5*request.PrefixTokens, request.Usage{}
		one.ObserveRequest(long)
		r.stop()
		assert.Equal(t, &counts{written: 4}, r.counts)
		assert.Empty(t, r.logs.All())
	})
	got := readRecording(t, path)
	require.Len(t, got, 4)
	first, whole, failed, long := got[0], got[1], got[2], got[3]
	no, yes, at, ttft, duration, zero, cached := false, true, 3500.0, 500.0, 1500.0, 0, 500
	assert.Equal(t, RecordedRequest{
		Timestamp: &at, Input: 600, Output: 10, Hashes: first.Hashes,
		Extension: Extension{
			Model: first.Model, Endpoint: &zero, Endpoints: 3, Streaming: &yes, Status: 200, TTFT: &ttft, Duration: &duration, Prompt: 640, Cached: &cached, Matched: 512,
		},
	}, first)
	assert.Equal(t, "ns/second", whole.Pool)
	assert.Equal(t, []int{1, 1}, []int{*whole.Endpoint, *long.Endpoint})
	assert.Equal(t, &no, whole.Streaming)
	assert.Nil(t, whole.TTFT)
	assert.Nil(t, whole.Cached)
	assert.Equal(t, first.Hashes, whole.Hashes)
	assert.Equal(t, []int{503, 1}, []int{failed.Status, failed.Output})
	assert.Equal(t, 9, long.Output, "the pieces of a stream without usage")
	assert.Equal(t, first.Hashes, long.Hashes[:2])
	for i, hash := range long.Hashes[2:] {
		assert.NotContains(t, append(long.Hashes[:2+i:2+i], long.Hashes[3+i:]...), hash, "what the picker did not read equals nothing")
	}
}

// A reader of the file must learn neither a name nor whether a prompt begins with a known text.
func TestRecordingHasNoSecrets(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	var lines []string
	for i := range 2 {
		path := filepath.Join(folder, fmt.Sprint(i))
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, path).start(t)
			r.ForPool("").ObserveRequest(answered(newEndpoint(1)))
			r.stop()
		})
		lines = append(lines, readFile(t, path))
	}
	assert.NotContains(t, lines[0], "secret")
	assert.NotContains(t, lines[0], "10.0.0.1")
	a, b := readRecording(t, filepath.Join(folder, "0"))[0], readRecording(t, filepath.Join(folder, "1"))[0]
	assert.NotEqual(t, a.Hashes, b.Hashes, "each recording has its own key")
	assert.NotEqual(t, a.Model, b.Model)
	assert.NotContains(t, a.Hashes, uint64(11))
	assert.LessOrEqual(t, max(a.Hashes[0], a.Hashes[1], a.Model), uint64(maxHash))
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &fields))
	for name, value := range fields {
		if _, text := value.(string); text {
			assert.Failf(t, "a text", "%s: %v", name, value)
		}
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	e := newEndpoint(1)
	for name, tt := range map[string]struct {
		change func(x *request.Record)
		want   map[Loss]int
	}{
		"refused":        {change: func(x *request.Record) { x.Endpoint = nil }},
		"early close":    {change: func(x *request.Record) { x.Outcome = request.Unseen }, want: map[Loss]int{LostUnseen: 1}},
		"protocol error": {change: func(x *request.Record) { x.Outcome = request.Failed }, want: map[Loss]int{LostUnseen: 1}},
		"no usage": {
			change: func(x *request.Record) { x.Streaming, x.Usage = false, request.Usage{} }, want: map[Loss]int{LostUncounted: 1},
		},
		"no prompt":   {change: func(x *request.Record) { x.FixedTokens = 0 }, want: map[Loss]int{LostPrompt: 1}},
		"long prompt": {change: func(x *request.Record) { x.FixedTokens = MaxTokens + 1 }, want: map[Loss]int{LostPrompt: 1}},
		"long answer": {change: func(x *request.Record) { x.Usage.Output = MaxTokens + 1 }, want: map[Loss]int{LostPrompt: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, "")
			x := answered(e)
			tt.change(x)
			r.ForPool("").ObserveRequest(x)
			assert.Equal(t, tt.want, r.counts.lost)
			assert.Empty(t, r.queue)
		})
	}
}

// Numbers that a server reports can be anything: the line must stay valid.
func TestServersCannotSpoilTheRecording(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, path).start(t)
		for _, u := range []request.Usage{
			{Known: true, Prompt: 1 << 40, Output: 3}, {Known: true, Prompt: -7, Output: 3}, {Known: true, Output: -3},
			{Known: true, Prompt: 5, Output: 3, Cached: 1 << 40, CachedKnown: true}, {Known: true, Prompt: 5, Output: 3, Cached: -1, CachedKnown: true},
		} {
			x := answered(newEndpoint(1))
			x.Usage, x.Status, x.MatchedTokens = u, 299, 1<<30
			x.EndTime = x.StartTime.Add(-time.Hour)
			r.ForPool("").ObserveRequest(x)
		}
		r.stop()
	})
	assert.Len(t, readRecording(t, path), 5)
}

func TestSlowWriterLosesRequestsAndBlocksNone(t *testing.T) {
	t.Parallel()
	r, x := newRig(t, ""), answered(newEndpoint(1))
	pool := r.ForPool("")
	for range queueLength + 10 {
		pool.ObserveRequest(x)
	}
	assert.Equal(t, map[Loss]int{LostBusy: 10}, r.counts.lost)
}

func TestLinesAreWrittenEachSecond(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, path).start(t)
		defer r.stop()
		r.ForPool("").ObserveRequest(answered(newEndpoint(1)))
		synctest.Wait()
		assert.Empty(t, readFile(t, path))
		time.Sleep(flushInterval)
		synctest.Wait()
		assert.Len(t, readRecording(t, path), 1)
	})
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "r")
	synctest.Test(t, func(t *testing.T) {
		room := 0
		r := newRig(t, path)
		r.files.onFullDisk(&room)
		r.start(t)
		observe := func() {
			r.ForPool("").ObserveRequest(answered(newEndpoint(1)))
			time.Sleep(flushInterval)
			synctest.Wait()
		}
		for range 5 {
			observe()
		}
		assert.Equal(t, map[Loss]int{LostFile: 5}, r.counts.lost)
		require.Equal(t, 1, r.logs.Len(), "an outage is one line")
		assert.Contains(t, r.logs.All()[0].ContextMap()["error"], "no space left on device")
		room = 1 << 20
		time.Sleep(retryInterval)
		observe()
		r.stop()
		assert.Equal(t, 1, r.counts.written)
		assert.Equal(t, "Resumed recording", r.logs.All()[1].Message)
	})
	assert.Len(t, readRecording(t, path), 1)
}

func TestUnwritableFileIsReportedAtStart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "absent", "r")
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, path).start(t)
		require.Equal(t, 1, r.logs.FilterMessageSnippet("Could not write the recording").Len())
		r.ForPool("").ObserveRequest(answered(newEndpoint(1)))
		r.stop()
		assert.Equal(t, map[Loss]int{LostFile: 1}, r.counts.lost)
	})
}

func TestEndpointNumbersAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	for n := range maxNumberedEndpoints + 5 {
		number := r.endpointNumber(newEndpoint(n).Identity())
		assert.Less(t, number, maxNumberedEndpoints)
	}
	assert.Len(t, r.endpoints, 5)
}

func TestHashesDifferByKind(t *testing.T) {
	t.Parallel()
	k := newKeys()
	seen := map[uint64]string{}
	for _, of := range []kind{kindPrefix, kindUnknown, kindModel} {
		for value := range uint64(1000) {
			seen[k.hashValue(of, value)] += fmt.Sprint(of, value)
		}
	}
	assert.Len(t, seen, 3000)
	assert.Equal(t, k.hashValue(kindPrefix, 1), k.hashValue(kindPrefix, 1))
}

// BenchmarkObserveRequest is what each request waits for.
func BenchmarkObserveRequest(b *testing.B) {
	r := New(Params{Path: filepath.Join(b.TempDir(), "r"), MaxBytes: 4 << 20, Log: zap.NewNop(), Observer: &counts{}, Clock: clock.RealClock{}})
	pool, x := r.ForPool(""), answered(newEndpoint(1))
	x.Target = strings.Repeat("m", 40)
	b.ReportAllocs()
	for b.Loop() {
		pool.ObserveRequest(x)
		<-r.queue
	}
}

// BenchmarkWrite is the cost of the writer for a request with 2048 prompt tokens.
func BenchmarkWrite(b *testing.B) {
	r := New(Params{Path: filepath.Join(b.TempDir(), "r"), MaxBytes: 64 << 20, Log: zap.NewNop(), Observer: &counts{}, Clock: clock.RealClock{}})
	x := answered(newEndpoint(1))
	x.FixedTokens, x.Prefixes = 2048, []uint64{1, 2, 3, 4}
	p := r.ForPool("").newQueuedRequest(x, 1)
	b.ReportAllocs()
	for b.Loop() {
		r.addLine(p)
	}
	r.files.closeFile()
}
