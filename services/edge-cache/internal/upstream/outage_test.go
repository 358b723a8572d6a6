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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"fairlead.dev/services/edge-cache/internal/store"
	"fairlead.dev/services/edge-cache/internal/wire"
)

// outage is an API server that answers 503 for some time and cuts all watches when that begins.
type outage struct {
	begin, end time.Time
	back       *time.Time // the first answer afterwards
}

func (o outage) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(code int, body io.ReadCloser) *http.Response {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}
	}
	now := time.Now()
	switch {
	case !now.Before(o.begin) && now.Before(o.end):
		return answer(http.StatusServiceUnavailable, io.NopCloser(strings.NewReader("no"))), nil
	case strings.HasSuffix(r.URL.Path, "/readyz"):
		return answer(http.StatusOK, http.NoBody), nil
	case strings.HasSuffix(r.URL.Path, "/kube-system"):
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(`{"metadata":{"uid":"one"}}`))), nil
	case r.URL.Query().Get("watch") == "":
		_, body := list(10, 10)
		return answer(http.StatusOK, io.NopCloser(strings.NewReader(body))), nil
	}
	reader, writer := io.Pipe()
	if now.Before(o.begin) {
		time.AfterFunc(time.Until(o.begin), func() { writer.CloseWithError(errors.New("cut")) })
	} else if o.back.IsZero() {
		*o.back = now
	}
	context.AfterFunc(r.Context(), func() { writer.CloseWithError(r.Context().Err()) })
	return answer(http.StatusOK, reader), nil
}

// TestReadsAreSoonAfterAShortOutage has an outage of 40 s after a watch that was open for an hour. The pauses depend on chance.
func TestReadsAreSoonAfterAShortOutage(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			var back time.Time
			begin := time.Now().Add(time.Hour)
			o := outage{begin: begin, end: begin.Add(40 * time.Second), back: &back}
			c, err := New(Params{Log: zap.NewNop(), Config: &rest.Config{
				Host: "http://api.example", WrapTransport: func(http.RoundTripper) http.RoundTripper { return o },
			}})
			require.NoError(t, err)
			r := NewReflector(ReflectorParams{
				Connection: c, Store: store.New(store.Params{ID: "example.com/v1/things", Format: wire.JSON, Journal: noJournal{}, Log: zap.NewNop()}),
				Path: "/apis/example.com/v1/things", Log: zap.NewNop(),
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{}, 2)
			for _, run := range []func(context.Context){c.Run, r.Run} {
				go func() { run(ctx); ended <- struct{}{} }()
			}
			time.Sleep(time.Until(o.end) + time.Minute)
			cancel()
			<-ended
			<-ended
			require.False(t, back.IsZero())
			assert.LessOrEqual(t, back.Sub(o.end), 5*time.Second)
		})
	}
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
			assert.True(t, c.Online())
		}
		lost.Store(1)
		time.Sleep(20 * time.Second)
		assert.False(t, c.Online())
		lost.Store(1000)
		time.Sleep(10 * time.Second)
		assert.True(t, c.Online())
		cancel()
		<-ended
	})
}
