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
	"fmt"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"fairlead.dev/pkg/servingcert"
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
			_, err = connect(t, s, creds).Check(t.Context(), &healthv1.HealthCheckRequest{})
			assert.Equal(t, tt.want, status.Code(err), err)
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	client := connect(t, start(t, Options{}.ServerOptions()...), insecure.NewCredentials())
	for size, want := range map[int]codes.Code{maxHeaderList / 2: codes.OK, maxHeaderList: codes.Internal} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "a", strings.Repeat("a", size))
		_, err := client.Check(ctx, &healthv1.HealthCheckRequest{})
		assert.Equal(t, want, status.Code(err), err)
	}
}

func TestGatewaysAreCounted(t *testing.T) {
	t.Parallel()
	s := start(t, Options{}.ServerOptions()...)
	assert.Zero(t, s.Stats())
	_, cancel := watch(t, connect(t, s, insecure.NewCredentials()))
	defer cancel()
	stats := s.Stats()
	assert.Equal(t, []int{1, 1, 1}, []int{stats.Peers, stats.Connections, stats.Streams})
}
