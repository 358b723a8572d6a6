package grpcserver

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

const extProc = "envoy.service.ext_proc.v3.ExternalProcessor"

var errNotReady = errors.New("no pool")

// healthRig is a health server, run, and a client of it.
type healthRig struct {
	*HealthServer

	client healthv1.HealthClient
	ready  atomic.Bool
}

func newHealthRig(t *testing.T) *healthRig {
	t.Helper()
	r := &healthRig{}
	readiness := newMockReadiness(t)
	readiness.EXPECT().CheckReady().RunAndReturn(func() error {
		if r.ready.Load() {
			return nil
		}
		return errNotReady
	})
	r.HealthServer = NewHealthServer(readiness, extProc)

	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	r.Register(server)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, 2)
	go func() { _ = server.Serve(listener); done <- struct{}{} }()
	go func() { r.Run(ctx); done <- struct{}{} }()
	conn, err := grpc.NewClient("passthrough:bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, conn.Close())
		cancel()
		server.Stop()
		<-done
		<-done
	})
	r.client = healthv1.NewHealthClient(conn)
	return r
}

func (r *healthRig) serving(t *testing.T, name string) bool {
	t.Helper()
	answer, err := r.client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
	require.NoError(t, err)
	return answer.GetStatus() == healthv1.HealthCheckResponse_SERVING
}

func readinessNames() []string { return []string{"", Readiness, chartName, extProc} }

func TestHealthFollowsReadiness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHealthRig(t)
		has := func(want bool) {
			for _, name := range readinessNames() {
				assert.Equal(t, want, r.serving(t, name), name)
			}
			assert.True(t, r.serving(t, Liveness), "liveness never depends on it")
		}
		has(false)
		require.ErrorIs(t, r.CheckReady(), errNotReady)
		for _, ready := range []bool{true, false} {
			r.ready.Store(ready)
			time.Sleep(refreshInterval)
			synctest.Wait()
			has(ready)
			assert.Equal(t, ready, r.CheckReady() == nil)
		}
	})
}

func TestDrainIsAtOnceAndForGood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHealthRig(t)
		r.ready.Store(true)
		time.Sleep(refreshInterval)
		synctest.Wait()

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		watch, err := r.client.Watch(ctx, &healthv1.HealthCheckRequest{Service: extProc})
		require.NoError(t, err)
		first, err := watch.Recv()
		require.NoError(t, err)
		assert.Equal(t, healthv1.HealthCheckResponse_SERVING, first.GetStatus())

		began := time.Now()
		r.SetDraining()
		for _, name := range readinessNames() {
			assert.False(t, r.serving(t, name), name)
		}
		assert.True(t, r.serving(t, Liveness))
		require.ErrorIs(t, r.CheckReady(), errDraining)
		second, err := watch.Recv()
		require.NoError(t, err)
		assert.Equal(t, healthv1.HealthCheckResponse_NOT_SERVING, second.GetStatus(), "a watch gets the change")
		assert.Zero(t, time.Since(began), "before the next refresh")

		time.Sleep(3 * refreshInterval)
		synctest.Wait()
		assert.False(t, r.serving(t, Readiness), "a pool that is there changes nothing")
	})
}

func TestUnknownServiceIsSaidToBe(t *testing.T) {
	t.Parallel()
	r := newHealthRig(t)
	_, err := r.client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: "other"})
	require.Equal(t, codes.NotFound, status.Code(err))

	// Whoever watches is told the same in another way, and the stream stays open, as gRPC's protocol has it.
	watch, err := r.client.Watch(t.Context(), &healthv1.HealthCheckRequest{Service: "other"})
	require.NoError(t, err)
	answer, err := watch.Recv()
	require.NoError(t, err)
	assert.Equal(t, healthv1.HealthCheckResponse_SERVICE_UNKNOWN, answer.GetStatus())
}
