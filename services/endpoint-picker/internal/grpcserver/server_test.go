package grpcserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

const patience = 10 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watchable is a service with streams that stay open until the client ends them.
type watchable struct{ *health.Server }

func (w watchable) Register(r grpc.ServiceRegistrar) { healthv1.RegisterHealthServer(r, w.Server) }

// start runs a server until the test ends.
func start(t *testing.T, options ...grpc.ServerOption) *Server {
	t.Helper()
	s := New(Params{Log: zap.NewNop(), Flag: "grpc-port", Options: options, Service: watchable{health.NewServer()}})
	require.NoError(t, s.Listen())
	run(t, s)
	return s
}

func run(t *testing.T, s *Server) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Run() }()
	t.Cleanup(func() {
		s.Close()
		require.NoError(t, <-done)
	})
}

func connect(t *testing.T, s *Server, creds credentials.TransportCredentials) healthv1.HealthClient {
	t.Helper()
	_, port, err := net.SplitHostPort(s.Address())
	require.NoError(t, err)
	conn, err := grpc.NewClient("passthrough:127.0.0.1:"+port, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return healthv1.NewHealthClient(conn)
}

// watch opens a stream and waits until the server has it.
func watch(t *testing.T, client healthv1.HealthClient) (healthv1.Health_WatchClient, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	stream, err := client.Watch(ctx, &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	return stream, cancel
}

// memory runs a server and a client of it within the process, so that a synctest bubble can wait for both.
func memory(t *testing.T) (*Server, *bufconn.Listener, healthv1.HealthClient) {
	t.Helper()
	s := New(Params{Log: zap.NewNop(), Service: watchable{health.NewServer()}})
	listener := bufconn.Listen(1 << 16)
	s.listener = listener
	run(t, s)
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return s, listener, healthv1.NewHealthClient(conn)
}

func TestDrainWaitsForStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, listener, client := memory(t)
		_, endStream := watch(t, client)

		drained := make(chan bool, 1)
		go func() { drained <- s.Drain(t.Context()) }()
		time.Sleep(patience / 2)
		_, err := listener.Dial()
		require.Error(t, err, "nothing new is accepted")
		assert.Empty(t, drained, "a stream is open")
		endStream()
		assert.True(t, <-drained)
	})
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, client := memory(t)
		stream, _ := watch(t, client)

		began := time.Now()
		bounded, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		assert.False(t, s.Drain(bounded))
		assert.Equal(t, patience/2, time.Since(began))
		s.Close()
		_, err := stream.Recv()
		assert.Equal(t, codes.Unavailable, status.Code(err), "the stream was cut")
	})
}

func TestDrainOfAnIdleServer(t *testing.T) {
	t.Parallel()
	assert.True(t, start(t).Drain(t.Context()))
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(start(t).Address())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	s := New(Params{Log: zap.NewNop(), Flag: "grpc-port", Port: n, Service: watchable{health.NewServer()}})
	require.ErrorContains(t, s.Listen(), fmt.Sprintf("listen on --grpc-port %d:", n))
	s.Close()
}

// selfSigned is a certificate of a test server's.
func selfSigned(t *testing.T) *tls.Config {
	t.Helper()
	lender := httptest.NewUnstartedServer(nil)
	lender.StartTLS()
	defer lender.Close()
	return &tls.Config{Certificates: lender.TLS.Certificates, MinVersion: tls.VersionTLS12}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := start(t, Options{TLS: selfSigned(t)}.ServerOptions()...)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		cfg := &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, NextProtos: []string{"h2"}}
		_, port, err := net.SplitHostPort(s.Address())
		require.NoError(t, err)
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, cfg)
		require.NoError(t, err)
		state := conn.ConnectionState()
		assert.Equal(t, version, state.Version)
		assert.Equal(t, "h2", state.NegotiatedProtocol)
		require.NoError(t, conn.Close())
	}
	_, cancel := watch(t, connect(t, s, credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
	cancel()
}

func TestMessageSizes(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("a", 10<<10)
	tests := []struct {
		name string
		give Options
		want codes.Code
	}{
		{name: "by the largest body", give: Options{}, want: codes.NotFound}, // the service of that name, which was read
		{name: "received ones bounded", give: Options{MaxReceive: 9 << 10}, want: codes.ResourceExhausted},
		{name: "sent ones bounded", give: Options{MaxSend: 1}, want: codes.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client := connect(t, start(t, tt.give.ServerOptions()...), insecure.NewCredentials())
			_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: large})
			assert.Equal(t, tt.want, status.Code(err))
			_, err = client.Check(t.Context(), &healthv1.HealthCheckRequest{})
			assert.Equal(t, tt.give.MaxSend == 1, status.Code(err) == codes.ResourceExhausted, err)
		})
	}
}

func TestManyStreamsOnOneConnection(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, Options{}.ServerOptions()...), insecure.NewCredentials())
	var open sync.WaitGroup
	for range 500 {
		open.Go(func() { watch(t, client) })
	}
	open.Wait()
}
