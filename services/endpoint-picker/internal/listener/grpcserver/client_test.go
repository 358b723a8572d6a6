package grpcserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // as in the program, where a library registers it
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

func newTestPeer() *client {
	return newClient(New(Params{Ledger: limits.NewLedger(limits.Limits{})}), netip.Addr{})
}

// TestManyConnections has a hostile client with many connections.
func TestManyConnections(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		total   int
		perPeer int64
		want    int // connections of the hostile client
	}{
		{name: "limit of a peer", total: MaxConnections, perPeer: 20, want: 20},
		{name: "limit of all", total: 30, perPeer: maxConnectionsOfClient, want: 31},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := overMemory(t, testLimits{})
				r.params.Ledger, r.maxConnsOfClient = limits.NewLedger(limits.Limits{Connections: tt.total}), tt.perPeer
				var conns []*raw
				for range 60 {
					x := r.dialRaw(t, hostile, http2Window)
					x.read()
					conns = append(conns, x)
					time.Sleep(limits.LevelAge)
				}
				assert.Equal(t, tt.want, r.GatewayStats().Connections)
				assert.Equal(t, int64(60-tt.want), r.GatewayStats().RefusedConnections)
				for i, x := range conns {
					x.mu.Lock()
					assert.Equal(t, i >= tt.want, x.broken != nil, "connection %d", i)
					x.mu.Unlock()
				}
				for range 10 {
					assert.Equal(t, served, r.gateway(t, good).ask(10))
				}
				_ = conns[0].net.Close()
				_ = conns[1].net.Close()
				time.Sleep(limits.LevelAge)
				x := r.dialRaw(t, hostile, http2Window)
				x.read()
				id := x.open()
				x.send(id, message("headers"), 100)
				time.Sleep(time.Second)
				x.mu.Lock()
				defer x.mu.Unlock()
				assert.Equal(t, tt.total == 30, x.broken != nil, "with the good peer there is one place less than before")
			})
		})
	}
}

// TestPeerThatDoesNotReadItsConnection has replies that do not leave the server's socket.
func TestPeerThatDoesNotReadItsConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		x := r.dialRaw(t, hostile, 1<<30) // and x.read() is not called
		for range 5 {
			id := x.open()
			x.send(id, message("headers"), 100)
			x.send(id, message(strings.Repeat("a", 40<<10)), 16<<10) // below the windows that x did not read about
			x.send(id, message("end"), 100)
			synctest.Wait()
			time.Sleep(sweepInterval)
		}
		assert.Zero(t, r.GatewayStats().RefusedStreams)
		time.Sleep(2 * maxBlocked)
		streamsBefore := r.GatewayStats().Streams
		assert.Positive(t, streamsBefore)
		for range 10 {
			x.open()
		}
		synctest.Wait()
		assert.Equal(t, int64(10), r.GatewayStats().RefusedStreams)
		assert.Equal(t, streamsBefore, r.GatewayStats().Streams)
		assert.Equal(t, served, r.gateway(t, good).ask(1000))
		assert.Equal(t, served, r.gateway(t, hostile).ask(1000), "other connections of the peer are served")

		time.Sleep(closeBlocked)
		assert.Equal(t, int64(1), r.GatewayStats().BlockedConnections)
		assert.Zero(t, r.GatewayStats().Streams)
		assert.Error(t, x.data(1, make([]byte, pipeSize+1)), "the connection is closed")
	})
}

// TestIdlePeers checks that the servers of clients without connections end.
func TestIdlePeers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		instances := func() int {
			r.mu.Lock()
			defer r.mu.Unlock()
			return len(r.instances)
		}
		for n := range 10 {
			x := r.dialRaw(t, fmt.Sprintf("10.0.0.%d", n), http2Window)
			x.read()
		}
		g := r.gateway(t, good)
		assert.Equal(t, served, g.ask(0))
		assert.Equal(t, 11, r.GatewayStats().Clients)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, 11, instances(), "connected peers stay")
		g.close()
		time.Sleep((idleSweeps - 2) * sweepInterval)
		assert.Equal(t, 11, instances())
		time.Sleep(4 * sweepInterval)
		assert.Equal(t, 10, instances())
		assert.Equal(t, 10, r.GatewayStats().Clients)
		assert.Equal(t, served, r.gateway(t, good).ask(0))
		assert.Equal(t, 11, r.GatewayStats().Clients)
	})
}

// TestConnectionForEachRequest is how some gateways do it: their server stays.
func TestConnectionForEachRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		var first *clientServer
		for range 100 {
			g := r.gateway(t, good)
			assert.Equal(t, served, g.ask(10))
			r.mu.Lock()
			for i := range r.instances {
				if first == nil {
					first = i
				}
				assert.Same(t, first, i)
			}
			r.mu.Unlock()
			g.close()
			time.Sleep(time.Second)
			assert.Zero(t, r.GatewayStats().Connections)
			assert.Zero(t, r.GatewayStats().Streams)
		}
	})
}

func TestMessageSizesOfAStream(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("0123456789abc", n/13+1)[:n] }
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "empty message", give: []string{"", "end"}, want: served},
		{
			name: "headers too large", give: []string{text(MaxHeadersMessage + 1)},
			want: "refused: message of 262145 bytes exceeds the limit of 262144 bytes",
		},
		{name: "largest headers", give: []string{text(MaxHeadersMessage), "headers", "end"}, want: text(MaxHeadersMessage)},
		{name: "body in one message", give: []string{"headers", text(maxBody), "end"}, want: text(maxBody)},
		{name: "odd body", give: []string{"headers", text(3*pieceSize + 1), "end"}, want: text(3*pieceSize + 1)},
		{
			name: "body too large", give: []string{"headers", text(maxBody + bodyMessageRoom + 1)},
			want: "refused: message of 1310721 bytes exceeds the limit of 1310720 bytes",
		},
		{
			name: "body far too large", give: []string{"headers", text(10 * maxBody)},
			want: "refused: message of 10485760 bytes exceeds the limit of 1310720 bytes",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := overMemory(t, testLimits{})
				s, cancel := r.gateway(t, good).open()
				send(t, s, tt.give...)
				reply, err := receive(s)
				require.NoError(t, err)
				if reply != tt.want {
					t.Fatalf("got %d bytes: %.100q", len(reply), reply)
				}
				require.NoError(t, s.CloseSend())
				for err == nil {
					_, err = receive(s)
				}
				require.ErrorIs(t, err, io.EOF)
				cancel()
				r.await(t, "nothing is held", func() bool { return r.GatewayStats().Streams == 0 && r.GatewayStats().Bytes == 0 })
			})
		})
	}
}

func TestBrokenMessages(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header [2]string
		give   []byte
		want   codes.Code
	}{
		{name: "compressed stream", header: [2]string{"grpc-encoding", "gzip"}, give: message("headers"), want: codes.Unimplemented},
		{name: "unknown compression", header: [2]string{"grpc-encoding", "nonsense"}, give: message("headers"), want: codes.Unimplemented},
		{name: "identity", header: [2]string{"grpc-encoding", "identity"}, give: message("headers"), want: codes.OK},
		{name: "compressed message", give: append([]byte{1}, message("headers")[1:]...), want: codes.Unimplemented},
		{name: "end within a message", give: message("headers")[:8], want: codes.Internal},
		{name: "end within a length", give: message("headers")[:3], want: codes.Internal},
		{name: "end", want: codes.OK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := overMemory(t, testLimits{})
				x := r.dialRaw(t, hostile, http2Window)
				x.read()
				id := x.open(tt.header)
				x.send(id, tt.give, 100)
				x.end(id)
				x.until("end of the stream", func() bool { return x.ended[id] })
				assert.Equal(t, tt.want, x.code(id))
				time.Sleep(time.Second)
				assert.Zero(t, r.GatewayStats().Streams)
				r.collected(t)
			})
		})
	}
}

// TestStreamsWithoutAHandler end, too, though nobody opens them.
func TestStreamsWithoutAHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		g := r.gateway(t, good)
		for _, method := range []string{"/test.Service/Unknown", "/unknown/Stream", "nonsense"} {
			err := g.conn.Invoke(t.Context(), method, "a", new([]byte))
			assert.Equal(t, codes.Unimplemented, status.Code(err), method)
		}
		time.Sleep(2 * sweepInterval)
		assert.Zero(t, r.GatewayStats().Streams)
	})
}

func TestOpenOfOtherStreams(t *testing.T) {
	t.Parallel()
	_, err := OpenStream(plainStream{ctx: t.Context()}, awaitingHeaders)
	assert.Equal(t, codes.Internal, status.Code(err))
	cl := newTestPeer()
	header := metadata.Pairs("a", "b", ":authority", "epp.ns.svc:9002")
	_, err = cl.tapStream(t.Context(), &tap.Info{Header: header})
	assert.Equal(t, codes.Internal, status.Code(err), "without a connection")
	assert.Equal(t, metadata.Pairs(":authority", "epp.ns.svc:9002"), header, "the stream would keep the others")
	long := metadata.Pairs(":authority", strings.Repeat("a", 513))
	_, err = cl.tapStream(t.Context(), &tap.Info{Header: long})
	assert.Equal(t, codes.Internal, status.Code(err))
	assert.Empty(t, long)
	assert.Zero(t, cl.account.CurrentUse(limits.Streams))

	s := newStream(t.Context(), cl, nil)
	ctx := grpc.NewContextWithServerTransportStream(s.ctx, fakeTransport{})
	s.cancel(context.Canceled)
	require.True(t, cl.addStream(s))
	s.removeUnopened()
	assert.Zero(t, cl.account.CurrentUse(limits.Streams))
	_, err = OpenStream(plainStream{ctx: ctx}, awaitingHeaders)
	assert.Equal(t, codes.Canceled, status.Code(err), "after the end")
}

type plainStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (p plainStream) Context() context.Context { return p.ctx }

type fakeTransport struct {
	transportStream
	grpc.ServerTransportStream
}

func (fakeTransport) RecvCompress() string { return "" }

func TestHold(t *testing.T) {
	t.Parallel()
	cl := newTestPeer()
	s := newStream(t.Context(), cl, newClientConn(nil, cl))
	require.True(t, cl.addStream(s))
	s.phase.Store(open)
	s.AddHeldBytes(1000)
	s.AddHeldBytes(24)
	assert.Equal(t, int64(1024), cl.account.CurrentUse(limits.Bytes))
	s.Close()
	assert.Zero(t, cl.account.CurrentUse(limits.Bytes))
	assert.Zero(t, cl.account.CurrentUse(limits.Streams))
}

// TestTLSOfAStream checks that the connection of a stream is known through TLS.
func TestTLSOfAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := servingcert.SelfSigned(servingcert.Params{Log: zap.NewNop()}, "picker", servingcert.Options{}, time.Now())
		require.NoError(t, err)
		r := overMemory(t, testLimits{}, grpc.Creds(credentials.NewTLS(store.TLS(servingcert.Options{}))))
		conn, err := grpc.NewClient("passthrough:server", grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx, good) }),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
		require.NoError(t, err)
		g := &gateway{t, conn}
		assert.Equal(t, served, g.ask(maxBody))
		require.NoError(t, conn.Close())
		r.await(t, "nothing is held", func() bool { return r.GatewayStats() == Stats{Clients: 1} })
	})
}

// brokenListener fails to accept with some errors first.
type brokenListener struct {
	net.Listener
	errs chan error
}

func (l brokenListener) Accept() (net.Conn, error) {
	select {
	case err := <-l.errs:
		return nil, err
	default:
		return l.Listener.Accept()
	}
}

func TestAcceptErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		l := brokenListener{n, make(chan error, 100)}
		for range 10 {
			l.errs <- &net.OpError{Op: "accept", Err: syscall.EMFILE}
		}
		began := time.Now()
		r := newRig(t, l, testLimits{})
		r.dial = n.dial
		assert.Equal(t, served, r.gateway(t, good).ask(0))
		assert.InDelta(t, 3.275, time.Since(began).Seconds(), 0.01, "5 ms, 10 ms, ... 1 s")
	})
	broken := errors.New("broken")
	l := brokenListener{newNetwork(), make(chan error, 1)}
	l.errs <- broken
	s := New(Params{Log: zap.NewNop(), Ledger: limits.NewLedger(limits.Limits{})})
	s.AttachListener(l)
	require.ErrorIs(t, s.Run(), broken)
	s.Close()
}

func TestStopBeforeServe(t *testing.T) {
	t.Parallel()
	s := New(Params{Log: zap.NewNop(), Ledger: limits.NewLedger(limits.Limits{})})
	s.Close()
	s.stopServers((*grpc.Server).GracefulStop)
	l := newNetwork()
	s.AttachListener(l)
	require.NoError(t, s.Run())
	_, err := l.Accept()
	assert.ErrorIs(t, err, net.ErrClosed)
}

// TestStopWhilePaused stops a server that does not read a client.
func TestStopWhilePaused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{MaxBytes: 1 << 20})
		x := r.dialRaw(t, hostile, http2Window)
		x.read()
		halfMessages(t, x, 40, 40<<10, 0)
		synctest.Wait()
		assert.Greater(t, r.GatewayStats().Bytes, 1<<20)
		r.dialRaw(t, hostile, http2Window) // does not get past the preface
		synctest.Wait()
		began := time.Now()
		r.Close()
		assert.Zero(t, time.Since(began))
	})
}

// TestGracefulStop has open streams of several clients.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		var waiting []grpc.ClientStream
		for _, from := range []string{good, hostile} {
			s, _ := r.gateway(t, from).open()
			send(t, s, "headers")
			waiting = append(waiting, s)
		}
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); r.DrainStreams(context.Background()) }()
		time.Sleep(time.Second)
		_, err := r.dial(t.Context(), good)
		require.Error(t, err, "nothing new is accepted")
		for _, s := range waiting {
			select {
			case <-stopped:
				t.Fatal("a stream is open")
			default:
			}
			send(t, s, "end")
			reply, err := receive(s)
			require.NoError(t, err)
			assert.Equal(t, served, reply)
			require.NoError(t, s.CloseSend())
			synctest.Wait()
		}
		<-stopped
	})
}

func TestStopShortensGracefulStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := overMemory(t, testLimits{})
		s, _ := r.gateway(t, good).open()
		send(t, s, "headers")
		synctest.Wait()
		stopped := make(chan struct{})
		go func() { defer close(stopped); r.DrainStreams(context.Background()) }()
		time.Sleep(time.Second)
		r.Close()
		<-stopped
		_, err := receive(s)
		assert.Equal(t, codes.Unavailable, status.Code(err))
	})
}
