package grpcserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
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
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// watchable is a service with streams that stay open until the client ends them.
type watchable struct{ *health.Server }

func (w watchable) Register(r grpc.ServiceRegistrar) { healthv1.RegisterHealthServer(r, w.Server) }

// memory is a server whose connections are within the process, so that a synctest bubble can wait for them.
type memory struct {
	*Server

	listener *bufconn.Listener
}

// start runs a server until the test ends.
func start(t *testing.T, options ...grpc.ServerOption) memory {
	t.Helper()
	m := memory{
		Server:   New(Params{Log: zap.NewNop(), Options: options, Register: watchable{health.NewServer()}.Register, Ledger: limits.NewLedger(limits.Limits{})}),
		listener: bufconn.Listen(1 << 16),
	}
	m.AttachListener(m.listener)
	run(t, m.Server)
	return m
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

func (m memory) connect(t *testing.T, creds credentials.TransportCredentials) healthv1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:memory", grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return m.listener.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return healthv1.NewHealthClient(conn)
}

// watch opens a stream and waits until the server has it.
func watch(t *testing.T, client healthv1.HealthClient) (healthv1.Health_WatchClient, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience)
	t.Cleanup(cancel)
	stream, err := client.Watch(ctx, &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	return stream, cancel
}

func TestDrainWaitsForStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		_, endStream := watch(t, s.connect(t, insecure.NewCredentials()))

		drained := make(chan bool, 1)
		go func() { drained <- s.DrainStreams(t.Context()) }()
		time.Sleep(time.Minute)
		_, err := s.listener.Dial()
		require.Error(t, err, "nothing new is accepted")
		assert.Empty(t, drained, "a stream is open")
		endStream()
		assert.True(t, <-drained)
	})
}

func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := start(t)
		stream, _ := watch(t, s.connect(t, insecure.NewCredentials()))

		began := time.Now()
		bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		assert.False(t, s.DrainStreams(bounded))
		assert.Equal(t, time.Minute, time.Since(began))
		s.Close()
		_, err := stream.Recv()
		assert.Equal(t, codes.Unavailable, status.Code(err), "the stream was cut")
	})
}

func TestDrainOfAnIdleServer(t *testing.T) {
	t.Parallel()
	assert.True(t, start(t).DrainStreams(t.Context()))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	store, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "picker", servingcert.Options{}, time.Now())
	require.NoError(t, err)
	s := start(t, Options{TLS: store.TLS(servingcert.Options{})}.ServerOptions()...)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		connection, err := s.listener.DialContext(t.Context())
		require.NoError(t, err)
		conn := tls.Client(connection, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version, NextProtos: []string{"h2"}})
		require.NoError(t, conn.HandshakeContext(t.Context()))
		state := conn.ConnectionState()
		assert.Equal(t, version, state.Version)
		assert.Equal(t, "h2", state.NegotiatedProtocol)
		require.NoError(t, conn.Close())
	}
	_, cancel := watch(t, s.connect(t, credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})))
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
			client := start(t, tt.give.ServerOptions()...).connect(t, insecure.NewCredentials())
			_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: large})
			assert.Equal(t, tt.want, status.Code(err))
			_, err = client.Check(t.Context(), &healthv1.HealthCheckRequest{})
			assert.Equal(t, tt.give.MaxSend == 1, status.Code(err) == codes.ResourceExhausted, err)
		})
	}
}

func TestManyStreamsOnOneConnection(t *testing.T) {
	t.Parallel()
	client := start(t, Options{}.ServerOptions()...).connect(t, insecure.NewCredentials())
	var open sync.WaitGroup
	for range 500 {
		open.Go(func() { watch(t, client) })
	}
	open.Wait()
}

// clientAuthority writes the certificate of a new authority to a file, and returns a certificate of it for clients.
func clientAuthority(t *testing.T) (file string, client tls.Certificate) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (tls.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		if signer == nil {
			signer = key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		require.NoError(t, err)
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, key
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority, key := issue(template, template, nil)
	client, _ = issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "gateway"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, template, key)
	file = filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}), 0o600))
	return file, client
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	file, client := clientAuthority(t)
	_, other := clientAuthority(t)
	tests := []struct {
		name  string
		names []string
		give  []tls.Certificate
		want  codes.Code
	}{
		{name: "none", want: codes.Unavailable},
		{name: "another authority", give: []tls.Certificate{other}, want: codes.Unavailable},
		{name: "any name", give: []tls.Certificate{client}, want: codes.OK},
		{name: "wrong name", names: []string{"other"}, give: []tls.Certificate{client}, want: codes.Unavailable},
		{name: "right name", names: []string{"other", "gateway"}, give: []tls.Certificate{client}, want: codes.OK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			store, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop(), ClientCAFile: file, ClientNames: tt.names},
				"picker", servingcert.Options{}, time.Now())
			require.NoError(t, err)
			s := start(t, Options{TLS: store.TLS(servingcert.Options{})}.ServerOptions()...)
			creds := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: tt.give})
			_, err = s.connect(t, creds).Check(t.Context(), &healthv1.HealthCheckRequest{})
			assert.Equal(t, tt.want, status.Code(err), err)
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	client := start(t, Options{}.ServerOptions()...).connect(t, insecure.NewCredentials())
	for size, want := range map[int]codes.Code{maxHeaderList / 2: codes.OK, maxHeaderList: codes.Internal} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("a", size))
		_, err := client.Check(ctx, &healthv1.HealthCheckRequest{})
		assert.Equal(t, want, status.Code(err), err)
	}
}

func TestGatewaysAreCounted(t *testing.T) {
	t.Parallel()
	s := start(t, Options{}.ServerOptions()...)
	assert.Zero(t, s.GatewayStats())
	_, cancel := watch(t, s.connect(t, insecure.NewCredentials()))
	defer cancel()
	stats := s.GatewayStats()
	assert.Equal(t, []int{1, 1, 1}, []int{stats.Clients, stats.Connections, stats.Streams})
}
