package holds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/pkg/memnet"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// objects are a reader of objects that can be replaced.
type objects struct {
	kind kit.Kind

	mu sync.Mutex
	kit.Reader
}

func (o *objects) set(t *testing.T, manifests ...string) {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, text := range manifests {
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON([]byte(text))
		require.NoError(t, err)
		require.NoError(t, u.UnmarshalJSON(raw))
		all = append(all, u)
	}
	reader, err := (&kit.Snapshot{Objects: all}).Reader(o.kind)
	require.NoError(t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Reader = reader
}

func (o *objects) Get(name cache.ObjectName) (any, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Reader.Get(name)
}

func (o *objects) ByIndex(index, value string) []any {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.Reader.ByIndex(index, value)
}

func poolObject(namespace, name string) string {
	return fmt.Sprintf(`
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {namespace: %s, name: %s}
spec: {endpointPickerRef: {name: epp, port: {number: 9002}}}`, namespace, name)
}

// slice returns an EndpointSlice of the Service epp with a port for metrics.
func slice(namespace string, addresses ...string) string {
	text := fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: %s, name: epp-1, labels: {kubernetes.io/service-name: epp}}
addressType: IPv4
ports: [{name: grpc, port: 9002}, {name: metrics, port: 9090}]
endpoints:`, namespace)
	for _, a := range addresses {
		text += fmt.Sprintf("\n- {addresses: [%s], conditions: {ready: true}}", a)
	}
	return text
}

// world is pickers in memory, by address.
type world struct {
	t         *testing.T
	table     *Table
	follower  *Follower
	pools     *objects
	endpoints *objects
	logs      *observer.ObservedLogs

	mu       sync.Mutex
	handlers map[string]http.Handler
	dials    map[string]int
	reported []snapshot.ModelKey
	times    []time.Time // of reports
	followed [2]int
}

// ObservePickers implements meter.
func (w *world) ObservePickers(following, failing int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.followed = [2]int{following, failing}
}

// counted returns how many pickers are followed, and how many cannot be.
func (w *world) counted() [2]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.followed
}

func newWorld(t *testing.T) *world {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	kinds := informers.Declare("").EnabledKinds()
	pool := slices.IndexFunc(kinds, func(k kit.Kind) bool { return k.Name == "InferencePool" })
	w := &world{
		t: t, table: NewTable(), logs: logs, handlers: map[string]http.Handler{}, dials: map[string]int{},
		pools: &objects{kind: kinds[pool]}, endpoints: &objects{kind: informers.EndpointsKind()},
	}
	w.table.OnHold(func(k snapshot.ModelKey) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.reported, w.times = append(w.reported, k), append(w.times, time.Now())
	})
	w.pools.set(t, poolObject("ns", "pool"))
	w.endpoints.set(t, slice("ns", "10.0.0.1"))
	w.follower = NewFollower(Params{
		Options: Options{Dial: w.dial}, Log: zap.New(core), Table: w.table, Pools: []kit.Reader{w.pools}, Endpoints: w.endpoints,
		ObservePickers: w.ObservePickers,
	})
	return w
}

// dial connects to a server of its own, which ends with the connection.
func (w *world) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address)
	w.mu.Lock()
	handler := w.handlers[host]
	w.dials[host]++
	w.mu.Unlock()
	if handler == nil {
		return nil, errors.New("connection refused")
	}
	listener := memnet.Listen()
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ConnState: func(_ net.Conn, s http.ConnState) {
		if s == http.StateClosed {
			_ = listener.Close()
		}
	}}
	go func() { _ = server.Serve(listener) }()
	return listener.Dial(ctx, "", "")
}

// serve sets what answers at an address, nil for nothing.
func (w *world) serve(address string, h http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.handlers, address); h != nil {
		w.handlers[address] = h
	}
}

// run follows until the end of the test.
func (w *world) run(models ...snapshot.ModelKey) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.follower.Run(ctx)
	}()
	w.follower.WatchModels(append(models, llama))
	synctest.Wait()
	return func() {
		cancel()
		<-done
		synctest.Wait()
	}
}

// dialed returns the numbers of connections, by address.
func (w *world) dialed() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.dials)
}

// firstHolds returns the first holds that were reported.
func (w *world) firstHolds() []snapshot.ModelKey {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.reported)
}

// firstTime returns when the first of them was.
func (w *world) firstTime() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.times[0]
}

// sleep lets time pass.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) waiting(k snapshot.ModelKey) (now int, watched bool) {
	now, _, watched = w.table.CountWaiting(k)
	return now, watched
}

// lines returns a handler of a stream that writes what it gets from a channel. The stream ends with the channel.
func lines(texts <-chan string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/holds" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text, more := <-texts:
				if !more {
					return
				}
				_, _ = io.WriteString(w, text+"\n")
				_ = http.NewResponseController(w).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

func says(pool snapshot.PoolKey, model string, waiting int) string {
	return fmt.Sprintf(`{"namespace":%q,"pool":%q,"models":[{"model":%q,"waiting":%d,"oldestSeconds":1.25}]}`, pool.Namespace, pool.Name, model, waiting)
}

// TestFollow: all replicas of a picker are followed, from when they are ready until they are not.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		first, second := make(chan string, 9), make(chan string, 9)
		w.serve("10.0.0.1", lines(first))
		w.serve("10.0.0.2", lines(second))
		w.endpoints.set(t, slice("ns", "10.0.0.1", "10.0.0.2"))
		defer w.run()()
		_, watched := w.waiting(llama)
		assert.False(t, watched, "they said nothing yet")

		first <- says(pool, "llama", 0)
		second <- says(pool, "llama", 0)
		sleep(time.Second)
		before := time.Now()
		first <- says(pool, "llama", 3)
		second <- says(pool, "llama", 2)
		sleep(200 * time.Millisecond)
		now, watched := w.waiting(llama)
		assert.True(t, watched)
		assert.Equal(t, 5, now)
		assert.Equal(t, []snapshot.ModelKey{llama}, w.firstHolds())
		assert.Equal(t, [2]int{2, 0}, w.counted())
		assert.LessOrEqual(t, w.firstTime().Sub(before), 10*time.Millisecond, "without a pass and without a poll")

		w.endpoints.set(t, slice("ns", "10.0.0.2"))
		sleep(syncInterval)
		now, _ = w.waiting(llama)
		assert.Equal(t, 2, now)
		w.follower.WatchModels(nil) // the term ends
		sleep(syncInterval)
		_, watched = w.waiting(llama)
		assert.False(t, watched)
		assert.Equal(t, map[string]int{"10.0.0.1": 1, "10.0.0.2": 1}, w.dialed())
		assert.Zero(t, w.logs.Len())
	})
}

// TestNewModel: what waits for a model that was not known is asked for again.
func TestNewModel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		texts := make(chan string, 9)
		w.serve("10.0.0.1", lines(texts))
		defer w.run()()
		texts <- says(pool, "qwen", 1)
		sleep(time.Second)
		now, _ := w.waiting(qwen)
		assert.Zero(t, now)
		w.follower.WatchModels([]snapshot.ModelKey{llama, qwen})
		sleep(time.Second)
		texts <- says(pool, "qwen", 1)
		sleep(time.Second)
		now, _ = w.waiting(qwen)
		assert.Equal(t, 1, now)
		assert.Equal(t, 2, w.dialed()["10.0.0.1"])
	})
}

// TestHeartbeat: a picker that is silent for 45 s is gone, and one that sends empty lines is not.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		texts := make(chan string)
		w.serve("10.0.0.1", lines(texts))
		defer w.run()()
		texts <- says(pool, "llama", 1)
		for range 20 {
			sleep(40 * time.Second)
			texts <- ""
		}
		sleep(44 * time.Second)
		now, _ := w.waiting(llama)
		assert.Equal(t, 1, now)
		assert.Equal(t, 1, w.dialed()["10.0.0.1"])
		sleep(2 * time.Second)
		_, watched := w.waiting(llama)
		assert.False(t, watched)
		sleep(2 * time.Second)
		assert.Equal(t, 2, w.dialed()["10.0.0.1"])
	})
}

// TestHostilePickers: whatever a picker says costs its own pool only.
func TestHostilePickers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text string
		ends bool
	}{
		"another namespace":  {says(snapshot.PoolKey{Namespace: "other", Name: "pool"}, "llama", 1), false},
		"another pool":       {says(snapshot.PoolKey{Namespace: "ns", Name: "other"}, "llama", 1), false},
		"another model":      {says(pool, "nobody's", 1), false},
		"a negative number":  {says(pool, "llama", -1), false},
		"no JSON":            {"llama", true},
		"a number too large": {`{"namespace":"ns","pool":"pool","models":[{"model":"llama","waiting":1e30}]}`, true},
		"a line too long":    {strings.Repeat(" ", maxLine+1), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.pools.set(t, poolObject("ns", "pool"), poolObject("other", "pool"))
				texts := make(chan string, 9)
				w.serve("10.0.0.1", lines(texts))
				stop := w.run(snapshot.PoolKey{Namespace: "other", Name: "pool"}.WithModel("llama"))
				defer stop()
				texts <- tt.text
				sleep(500 * time.Millisecond)
				assert.Empty(t, w.firstHolds())
				sleep(time.Minute)
				assert.Equal(t, tt.ends, w.dialed()["10.0.0.1"] > 2, "%d", w.dialed()["10.0.0.1"])
			})
		})
	}
}

// TestRefused: a picker that cannot be followed is asked again with growing pauses, and reported once.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"refused":   {nil, "connection refused"},
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) }, "set --holds-token-file"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.0.0.9/", http.StatusFound)
		}, "302 Found"},
		"silent": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "timeout awaiting response headers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.serve("10.0.0.1", tt.handler)
				defer w.run()()
				sleep(10 * time.Minute)
				warnings := w.logs.FilterMessageSnippet("Could not follow the requests that wait in a picker")
				require.Equal(t, 1, warnings.Len())
				assert.Contains(t, warnings.All()[0].ContextMap()["error"], tt.want)
				assert.InDelta(t, 22, w.dialed()["10.0.0.1"], 8)
				assert.Equal(t, [2]int{0, 1}, w.counted())
				assert.Zero(t, w.dialed()["10.0.0.9"])

				texts := make(chan string, 1)
				texts <- says(pool, "llama", 1)
				w.serve("10.0.0.1", lines(texts))
				sleep(time.Minute)
				assert.Equal(t, []snapshot.ModelKey{llama}, w.firstHolds())
			})
		})
	}
}

// TestTooManyPickers: a namespace gets 32 streams, and all together 256.
func TestTooManyPickers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var pools, all []string
		var models []snapshot.ModelKey
		for n := range 10 {
			namespace := fmt.Sprintf("ns-%d", n)
			var addresses []string
			for i := range 40 {
				addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", n, i))
			}
			pools = append(pools, poolObject(namespace, "pool"))
			all = append(all, slice(namespace, addresses[:32]...), strings.Replace(slice(namespace, addresses[32:]...), "epp-1", "epp-2", 1))
			models = append(models, snapshot.PoolKey{Namespace: namespace, Name: "pool"}.WithModel("llama"))
		}
		w.pools.set(t, pools...)
		w.endpoints.set(t, all...)
		defer w.run(models...)()
		sleep(syncInterval)
		assert.Len(t, w.dialed(), maxStreams)
		counts := map[string]int{}
		for address := range w.dialed() {
			counts[address[:len("10.0.0")]]++
		}
		for namespace, n := range counts {
			assert.Equal(t, maxOfNamespace, n, namespace)
		}
		assert.Equal(t, 1, w.logs.FilterMessageSnippet("too many to follow").Len())
	})
}

// TestScrape: the queues of a picker without a stream are read each second, under both names.
func TestScrape(t *testing.T) {
	t.Parallel()
	for _, metric := range []string{"llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var mu sync.Mutex
			page, scrapes := "", 0
			w.serve("10.0.0.1", func(out http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/metrics" {
					http.NotFound(out, r)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				scrapes++
				_, _ = io.WriteString(out, page)
			})
			set := func(text string) {
				mu.Lock()
				defer mu.Unlock()
				page = text
			}
			set("# TYPE other gauge\nother 1\n")
			defer w.run()()
			sleep(10 * time.Second)
			mu.Lock()
			assert.InDelta(t, 11, scrapes, 1)
			mu.Unlock()
			_, watched := w.waiting(llama)
			assert.True(t, watched)
			set(`# TYPE other gauge
other{model_name="llama"} 9
` + metric + `{fairness_id="a",inference_pool="pool",model_name="alias",target_model_name="llama"} 2
` + metric + `{fairness_id="b",inference_pool="",model_name="llama",target_model_name=""} 1
` + metric + `{fairness_id="c",inference_pool="other",model_name="llama",target_model_name="llama"} 7
` + metric + `{fairness_id="d",inference_pool="pool",model_name="llama",target_model_name="llama"} NaN
`)
			sleep(2 * scrapeInterval)
			now, _ := w.waiting(llama)
			assert.Equal(t, 3, now)
			assert.Equal(t, []snapshot.ModelKey{llama}, w.firstHolds())
			assert.Equal(t, 1, w.dialed()["10.0.0.1"], "one connection")
			set(metric + "{ 1\n")
			sleep(2 * time.Second)
			_, watched = w.waiting(llama)
			assert.False(t, watched, "a page that cannot be read says nothing")
		})
	}
}
