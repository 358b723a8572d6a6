//go:build system

package hermetic

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"fairlead.dev/services/endpoint-picker/test/envoytest"
)

// way is how an exchange ends.
type way int

const (
	inFull        way = iota
	inTheBody         // the gateway breaks off before the end of the request
	afterThePick      // it closes the stream when it knows where to go
	inTheResponse     // the client goes away
	overTheLimit      // the picker refuses it
	ways
)

// exchange is one of a load: messages that are sent, and checked replies. Unlike stream it may be used from any goroutine, as
// it returns what is wrong.
type exchange struct {
	stream  extprocv3.ExternalProcessor_ProcessClient
	gateway *envoytest.Gateway
}

// run sends a request and ends it in one way. It returns where the request went, which is nowhere if it was refused.
func run(client extprocv3.ExternalProcessorClient, how way, size int) (picked string, err error) {
	ctx, cancel := limited()
	defer cancel()
	stream, err := client.Process(ctx)
	if err != nil {
		return "", err
	}
	x := &exchange{stream: stream, gateway: envoytest.New(envoytest.Rules{})}
	body := longBody(size)
	x.send(request{body: body}.first())
	if how == inTheBody {
		x.send(envoytest.RequestBody(&extprocv3.HttpBody{Body: []byte(body[:size/2])}))
		return "", nil
	}
	for ; len(body) > 16<<10; body = body[16<<10:] {
		x.send(envoytest.RequestBody(&extprocv3.HttpBody{Body: []byte(body[:16<<10])}))
	}
	x.send(envoytest.RequestBody(whole(body)))
	if err := x.answered(); err != nil || x.gateway.ImmediateResponse() != nil {
		return "", err
	}
	if how == afterThePick {
		return x.gateway.PickedEndpoint(), x.close()
	}
	x.send(envoytest.ResponseHeaders(&extprocv3.HttpHeaders{Headers: envoytest.Headers(":status", "200", "content-type", "text/event-stream")}))
	for range 3 {
		x.send(envoytest.ResponseBody(&extprocv3.HttpBody{Body: []byte("data: {}\n\n")}))
		if err := x.answered(); err != nil {
			return "", err
		}
	}
	if how == inTheResponse {
		return x.gateway.PickedEndpoint(), nil
	}
	x.send(envoytest.ResponseBody(whole("data: [DONE]\n\n")))
	if err := x.answered(); err != nil {
		return "", err
	}
	return x.gateway.PickedEndpoint(), x.close()
}

// send sends a message; what became of the stream is found out by receiving.
func (x *exchange) send(m *extprocv3.ProcessingRequest) {
	x.gateway.RecordSent(m)
	_ = x.stream.Send(m)
}

func (x *exchange) answered() error {
	for x.gateway.CheckFinished() != nil {
		reply, err := x.stream.Recv()
		if err == nil {
			err = x.gateway.CheckReply(reply)
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", err, x.gateway.CheckFinished())
		}
	}
	return nil
}

func (x *exchange) close() error {
	if err := x.stream.CloseSend(); err != nil {
		return err
	}
	if reply, err := x.stream.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("stream goes on with %v, %w", reply, err)
	}
	return nil
}

// churn takes pods away and brings them back until stop is called. One always stays.
func (r *rig) churn() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			pod := 1 + i%(len(r.servers)-1)
			ip := r.servers[pod].address.Addr().String()
			for _, ready := range []bool{false, true} {
				r.api.put(r.t, pathPods, podName(pod), podObject(ip, ready, nil))
				select {
				case <-end:
					return
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}

// soaking starts a picker for a load in which pods come and go.
func soaking(t testing.TB) *rig {
	t.Helper()
	pages := make([]string, 4)
	for i := range pages {
		pages[i] = pageOf(0, 0, 0, "")
	}
	return start(t, world{pages: pages, flags: []string{"--max-request-body=64Ki", "--max-buffered-bytes=64Mi"}})
}

// draws an exchange: most end well, one in 50 is long.
func drawn() (how way, size int) {
	if how = way(rand.IntN(2 * int(ways))); how >= ways {
		how = inFull
	}
	switch size = 200 + rand.IntN(2000); {
	case how == overTheLimit:
		size = 100 << 10
	case rand.IntN(50) == 0:
		size = 60 << 10
	}
	return how, size
}

// A load with everything at once: pods that come and go, streams that end in every way. Nothing stays.
func TestLoadLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	r := soaking(t)
	stop := r.churn()
	var running sync.WaitGroup
	var brokenOff atomic.Int64 // streams that may end before a handler sees them
	for range 8 {
		running.Go(func() {
			for range 40 {
				how, size := drawn()
				if how == inTheBody {
					brokenOff.Add(1)
				}
				picked, err := run(r.gateway, how, size)
				if err != nil {
					t.Error(err)
					return
				}
				assert.Equal(t, how != inTheBody && how != overTheLimit, picked != "", "%d", how)
			}
		})
	}
	running.Wait()
	stop()
	r.settle()
	page := r.metrics()
	assert.Zero(t, page.sum("fairlead_picker_streams_total", "outcome", "failed"))
	seen := page.sum("fairlead_picker_streams_total")
	assert.LessOrEqual(t, seen, 320.0)
	assert.GreaterOrEqual(t, seen, 320-float64(brokenOff.Load()))
}

// BenchmarkSoak is the load of TestLoadLeavesNothingBehind, for as long as the benchmark runs. It reports what was left at the end:
// `go test -bench Soak -benchtime 10m ./test/hermetic` is a soak.
func BenchmarkSoak(b *testing.B) {
	r := soaking(b)
	stop := r.churn()
	for range 200 { // connections, pools and informers come into being
		how, size := drawn()
		_, err := run(r.gateway, how, size)
		require.NoError(b, err)
	}
	goroutines, bytes := rest(r)
	var failed atomic.Int64
	b.SetParallelism(8)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			how, size := drawn()
			if _, err := run(r.gateway, how, size); err != nil {
				failed.Add(1)
				b.Error(err)
			}
		}
	})
	b.StopTimer()
	stop()
	goroutinesNow, bytesNow := rest(r)
	page := r.metrics()
	b.ReportMetric(float64(failed.Load()), "failed")
	b.ReportMetric(page.sum("fairlead_picker_streams_in_flight")+page.sum(inFlight), "left-in-flight")
	b.ReportMetric(page.sum("fairlead_picker_request_bytes_buffered"), "left-buffered-B")
	b.ReportMetric(float64(goroutinesNow-goroutines), "left-goroutines")
	b.ReportMetric(float64(bytesNow-bytes), "left-heap-B")
	const others = 20 // connections of the churn
	if goroutinesNow > goroutines+others {
		b.Errorf("%d goroutines, and %d before", goroutinesNow, goroutines)
	}
}

// rest waits until nothing is counted, and returns what there is then.
func rest(r *rig) (goroutines int, bytes int64) {
	r.t.Helper()
	r.settle()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), int64(m.HeapAlloc)
}

// A picker is replaced by another beside it, as a Deployment that is not of the kind Recreate does it: no request fails, and one
// that is open when its picker gets SIGTERM goes on to its own end.
func TestRollingOver(t *testing.T) {
	t.Parallel()
	old := start(t, world{pages: []string{pageOf(0, 0, 0, ""), pageOf(0, 0, 0, "")}, flags: []string{"--drain-delay=10s"}})
	open := old.ask(request{body: ofModel})
	next := old.replica()
	var balanced atomic.Pointer[rig] // what the Service leads to: who is ready
	balanced.Store(old)
	var requests, failed atomic.Int64
	end := make(chan struct{})
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				requests.Add(1)
				if _, err := run(balanced.Load().gateway, inFull, 1000); err != nil {
					failed.Add(1)
					t.Log(err)
				}
			}
		})
	}
	next.await(func() bool { return next.serving("readiness") == healthv1.HealthCheckResponse_SERVING }, "ready")
	before := requests.Load()
	next.await(func() bool { return requests.Load() > before+20 }, "requests at the old one")
	old.stop()
	old.await(func() bool { return old.serving("readiness") != healthv1.HealthCheckResponse_SERVING }, "unready")
	before = requests.Load()
	next.await(func() bool { return requests.Load() > before+5 }, "requests while the news spreads")
	balanced.Store(next)
	next.await(func() bool {
		conn, err := net.Dial("tcp", old.address("grpc-port"))
		if err == nil {
			require.NoError(t, conn.Close())
		}
		return err != nil
	}, "the old one accepts nothing any more")
	before = requests.Load()
	next.await(func() bool { return requests.Load() > before+20 }, "requests at the next one")
	select {
	case <-old.stopped:
		t.Error("ended with a stream open")
	default:
	}
	open.respond(response{pieces: completion})
	open.end()
	<-old.stopped
	close(end)
	running.Wait()
	assert.Zero(t, failed.Load())
	assert.Empty(t, old.logs.FilterMessage("Cut streams still open at the end of the drain").All())
	next.settle()
}
