package upstream

import (
	"context"
	"errors"
	"io"
	"net/http"
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

// outages is an API server that answers 503 until a watch of an hour, which it cuts, and for some time after that.
type outages struct {
	begin, end time.Time // of the watch
	length     time.Duration
	back       time.Time   // of the first watch afterwards
	asked      []time.Time // requests that got 503, without probes
}

func (o *outages) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}
	}
	now := time.Now()
	switch {
	case strings.HasSuffix(r.URL.Path, "/readyz"):
		return answer(http.StatusOK, http.NoBody), nil
	case now.Before(o.begin), !now.Before(o.end) && now.Before(o.end.Add(o.length)):
		o.asked = append(o.asked, now)
		return answer(http.StatusServiceUnavailable, io.NopCloser(strings.NewReader("no"))), nil
	case strings.HasSuffix(r.URL.Path, "/kube-system"):
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(`{"metadata":{"uid":"one"}}`))), nil
	case r.URL.Query().Get("watch") == "":
		_, body := list(10, 10)
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(body))), nil
	}
	reader, writer := io.Pipe()
	if now.Before(o.end) {
		time.AfterFunc(time.Until(o.end), func() { writer.CloseWithError(errors.New("cut")) })
	} else if o.back.IsZero() {
		o.back = now
	}
	context.AfterFunc(r.Context(), func() { writer.CloseWithError(r.Context().Err()) })
	return answer(http.StatusOK, reader), nil
}

// newOutages runs a reflector until two minutes after the second outage.
func newOutages(t *testing.T, length time.Duration) *outages {
	t.Helper()
	begin := time.Now().Add(10 * time.Second)
	o := &outages{begin: begin, end: begin.Add(time.Hour), length: length}
	c, err := New(Params{Log: zap.NewNop(), Metrics: metrics.New(prometheus.NewRegistry()), Config: &rest.Config{
		Host: "http://api.example", WrapTransport: func(http.RoundTripper) http.RoundTripper { return o },
	}})
	require.NoError(t, err)
	r := NewReflector(ReflectorParams{
		Connection: c,
		Store: store.New(store.Params{
			ID: "example.com/v1/things", Format: wire.JSON, Journal: noJournal{}, Observer: metrics.New(prometheus.NewRegistry()),
			Log: zap.NewNop(),
		}),
		Path: "/apis/example.com/v1/things", Log: zap.NewNop(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for _, run := range []func(context.Context){c.Run, r.Run} {
		go func() { run(ctx); ended <- struct{}{} }()
	}
	time.Sleep(time.Until(o.end) + length + 2*time.Minute)
	cancel()
	<-ended
	<-ended
	require.False(t, o.back.IsZero())
	return o
}

// TestReadsAreSoonAfterAShortOutage has an outage of 40 s after a watch that was open for an hour. The pauses depend on chance.
func TestReadsAreSoonAfterAShortOutage(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			o := newOutages(t, 40*time.Second)
			assert.LessOrEqual(t, o.back.Sub(o.end), 45*time.Second)
		})
	}
}

// TestPausesGrowInALongOutage lets an API server recover: pauses are a sixteenth of the outage, and then 30 s, each plus or minus a half.
func TestPausesGrowInALongOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOutages(t, time.Hour)
		for i := 1; i < len(o.asked); i++ {
			if since := o.asked[i-1].Sub(o.end); since > time.Minute {
				assert.GreaterOrEqual(t, o.asked[i].Sub(o.asked[i-1]), min(since/delayDivisor, lastRetry)/2-time.Second, since.String())
			}
		}
		assert.Less(t, len(o.asked), 250)
	})
}

// TestLostProbes loses every other probe: only probes in a row make an outage, and any answer ends it.
func TestLostProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var probes, lost atomic.Int32
		lost.Store(2)
		r, _ := newReflector(t, func(*http.Request) (int, string) {
			if probes.Add(1)%lost.Load() == 0 {
				return 0, ""
			}
			return http.StatusInternalServerError, "[-]etcd failed"
		})
		c := r.params.Connection
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(ctx) }()
		for range 60 {
			time.Sleep(time.Second)
			assert.True(t, c.IsOnline())
		}
		lost.Store(1)
		time.Sleep(20 * time.Second)
		assert.False(t, c.IsOnline())
		lost.Store(1000)
		time.Sleep(10 * time.Second)
		assert.True(t, c.IsOnline())
		cancel()
		<-ended
	})
}
