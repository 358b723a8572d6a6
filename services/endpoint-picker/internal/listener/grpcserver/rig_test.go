package grpcserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

const (
	good    = "127.0.0.2"
	hostile = "127.0.0.3"

	maxBody     = 1 << 20
	streamPath  = "/test.Service/Stream"
	pipeSize    = 64 << 10
	http2Window = 65535
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The states of the test service, which is like ext_proc: headers, a body in pieces, a reply, a response.
var (
	awaitingHeaders  = &StreamState{Name: "headers", Timeout: 5 * time.Second, MaxMessage: MaxHeadersMessage, Evictable: true}
	collecting       = &StreamState{Name: "body", Timeout: 30 * time.Second, MaxMessage: MaxBodyMessage(maxBody), Evictable: true}
	awaitingResponse = &StreamState{Name: "response", Timeout: 10 * time.Minute, MaxMessage: MaxHeadersMessage}
)

// rawCodec sends and receives bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	switch v := v.(type) {
	case mem.Buffer:
		return mem.BufferSlice{v}, nil
	case string:
		return mem.BufferSlice{mem.SliceBuffer(v)}, nil
	}
	return nil, errors.New("not bytes")
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// service is the test service. It answers every message "end" with what it has collected, and "headers" with "ok".
type service struct {
	mu      sync.Mutex
	results []error
}

func (s *service) register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Service",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
			err := s.handle(stream)
			if status.Code(err) == codes.Canceled { // the gateway has what it wants
				err = nil
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.results = append(s.results, err)
			if _, ok := status.FromError(err); ok {
				return err
			}
			return nil
		}}},
	}, nil)
}

// ended returns the errors of the handlers that have returned.
func (s *service) ended() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]error(nil), s.results...)
}

func (s *service) handle(stream grpc.ServerStream) error {
	st, err := OpenStream(stream, awaitingHeaders)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := st.AdmitStream(); err != nil {
		return refuse(st, err)
	}
	var body mem.BufferSlice
	defer func() { body.Free() }()
	refuse := func(err error) error {
		body.Free() // before SendRefusal, which waits for the gateway
		body = nil
		return refuse(st, err)
	}
	for {
		message, err := st.ReceiveMessage()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return refuse(err)
		}
		switch {
		case message.Len() == 0, string(message.ReadOnlyData()) == "headers":
			message.Free()
			st.EnterState(collecting)
		case string(message.ReadOnlyData()) == "end":
			message.Free()
			st.EnterState(awaitingResponse)
			for i := range body {
				reply := body[i]
				body[i] = mem.SliceBuffer(nil)
				if err := st.SendReply(mem.BufferSlice{reply}); err != nil {
					return err
				}
			}
			body = nil
			if err := st.SendReply(mem.BufferSlice{mem.SliceBuffer("ok")}); err != nil {
				return err
			}
		default:
			body = append(body, message)
			if err := st.AdmitBytes(); err != nil {
				return refuse(err)
			}
		}
	}
}

// refuse tells the gateway why a stream ends.
func refuse(st *Stream, err error) error {
	_ = st.SendRefusal(mem.BufferSlice{mem.SliceBuffer("refused: " + err.Error())})
	return err
}

// network gives connections in memory the addresses of clients.
type network struct {
	// dialing makes the connections one after the other: bufconn starts timers that are due at once, and two of them at the same time crash
	// Go 1.26 in a bubble with the race detector.
	dialing sync.Mutex

	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newNetwork() *network {
	return &network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) RemoteAddr() net.Addr { return a.remote }

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.TCPAddr{} }

func (n *network) dial(ctx context.Context, from string) (net.Conn, error) {
	pair := bufconn.Listen(pipeSize)
	defer pair.Close()
	dialed := make(chan net.Conn, 1)
	go func() {
		n.dialing.Lock()
		defer n.dialing.Unlock()
		c, _ := pair.DialContext(ctx)
		dialed <- c
	}()
	server, err := pair.Accept()
	if err != nil {
		return nil, err
	}
	client := <-dialed
	select {
	case n.conns <- addressed{server, net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 1))}:
		return client, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// testLimits are the limits of a rig.
type testLimits struct {
	MaxBytes, MaxStreams        int
	MessageTimeout, SendTimeout time.Duration
}

// rig is a running server.
type rig struct {
	*Server
	service *service
	logs    *observer.ObservedLogs
	dial    func(ctx context.Context, from string) (net.Conn, error)

	// By the clock of the network: pass lets a time pass, await waits for a condition.
	pass  func(d time.Duration)
	await func(t *testing.T, what string, cond func() bool)
}

func newRig(t testing.TB, l net.Listener, o testLimits, options ...grpc.ServerOption) *rig {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{service: &service{}, logs: logs}
	r.Server = New(Params{
		Log: zap.New(core), Ledger: limits.NewLedger(limits.Limits{Connections: MaxConnections, Streams: o.MaxStreams, Bytes: o.MaxBytes}),
		MessageTimeout: o.MessageTimeout, SendTimeout: o.SendTimeout, Register: r.service.register,
		Options: append([]grpc.ServerOption{
			grpc.NumStreamWorkers(16), grpc.StaticStreamWindowSize(256 << 10), grpc.StaticConnWindowSize(4 << 20),
		}, options...),
	})
	done := make(chan error, 1)
	r.AttachListener(l)
	go func() { done <- r.Run() }()
	t.Cleanup(func() {
		r.Close()
		require.NoError(t, <-done)
	})
	return r
}

// overMemory is for tests within a synctest bubble.
func overMemory(t testing.TB, o testLimits, options ...grpc.ServerOption) *rig {
	t.Helper()
	n := newNetwork()
	r := newRig(t, n, o, options...)
	r.dial, r.pass, r.await = n.dial, time.Sleep, awaitInBubble
	return r
}

func awaitInBubble(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 10_000 {
		synctest.Wait()
		if cond() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal(what)
}

// gateway is a good gateway.
type gateway struct {
	t    testing.TB
	conn *grpc.ClientConn
}

func (r *rig) gateway(t testing.TB, from string) *gateway {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return r.dial(ctx, from) }),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(1<<30)))
	require.NoError(t, err)
	g := &gateway{t, conn}
	t.Cleanup(g.close)
	return g
}

func (g *gateway) close() { _ = g.conn.Close() } // once is enough

func (g *gateway) open() (grpc.ClientStream, context.CancelFunc) {
	g.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := g.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamPath)
	require.NoError(g.t, err)
	g.t.Cleanup(cancel)
	return s, cancel
}

func send(t testing.TB, s grpc.ClientStream, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := s.SendMsg(m); !errors.Is(err, io.EOF) { // the stream has ended: ReceiveMessage has the reason
			require.NoError(t, err)
		}
	}
}

func receive(s grpc.ClientStream) (string, error) {
	var reply []byte
	err := s.RecvMsg(&reply)
	return string(reply), err
}

// ask is one request with a body of n bytes. It returns the last reply.
func (g *gateway) ask(n int) string {
	g.t.Helper()
	s, cancel := g.open()
	defer cancel()
	send(g.t, s, "headers")
	if n > 0 {
		send(g.t, s, string(make([]byte, n)))
	}
	send(g.t, s, "end")
	last := ""
	for {
		reply, err := receive(s)
		if err != nil {
			return last + " " + err.Error()
		}
		if len(reply) < n || reply == "ok" {
			return reply
		}
		last = reply[:min(len(reply), 10)]
	}
}

// raw is a client that speaks HTTP/2 by hand.
type raw struct {
	t      testing.TB
	net    net.Conn
	framer *http2.Framer
	write  chan struct{} // serializes writes of the framer; in a bubble, goroutines that wait for a mutex are not blocked
	header bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32

	mu      sync.Mutex
	changed *sync.Cond
	conn    int            // window of the connection
	initial int            // window of new streams
	windows map[uint32]int // of streams
	replies map[uint32]int // bytes
	ended   map[uint32]bool
	codes   map[uint32]codes.Code
	broken  error
}

// dialRaw connects a client that offers a window for replies.
func (r *rig) dialRaw(t testing.TB, from string, window uint32) *raw {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience)
	defer cancel()
	c, err := r.dial(ctx, from)
	require.NoError(t, err)
	x := &raw{t: t, net: c, framer: http2.NewFramer(c, c), write: make(chan struct{}, 1), next: 1, conn: http2Window, initial: http2Window,
		windows: map[uint32]int{}, replies: map[uint32]int{}, ended: map[uint32]bool{}, codes: map[uint32]codes.Code{}}
	x.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	x.changed = sync.NewCond(&x.mu)
	x.hpack = hpack.NewEncoder(&x.header)
	_, _ = c.Write([]byte(http2.ClientPreface)) // the server may have closed it
	_ = x.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	t.Cleanup(func() { _ = c.Close() })
	return x
}

// read handles the server's frames until the connection ends. A client that does not call it does not read.
func (x *raw) read() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			f, err := x.framer.ReadFrame()
			x.mu.Lock()
			if err != nil {
				x.broken = err
			} else {
				x.handle(f)
			}
			x.changed.Broadcast()
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	x.t.Cleanup(func() { _ = x.net.Close(); <-done })
}

func (x *raw) handle(f http2.Frame) {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.WindowUpdateFrame:
		if id == 0 {
			x.conn += int(f.Increment)
		} else {
			x.windows[id] += int(f.Increment)
		}
	case *http2.SettingsFrame:
		if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
			for id := range x.windows {
				x.windows[id] += int(v) - x.initial
			}
			x.initial = int(v)
		}
	case *http2.DataFrame:
		x.replies[id] += len(f.Data())
		x.ended[id] = x.ended[id] || f.StreamEnded()
	case *http2.MetaHeadersFrame:
		x.ended[id] = x.ended[id] || f.StreamEnded()
		for _, h := range f.Fields {
			if n, err := strconv.Atoi(h.Value); err == nil && h.Name == "grpc-status" {
				x.codes[id] = codes.Code(n)
			}
		}
	case *http2.RSTStreamFrame:
		x.ended[id] = true
	}
}

func (x *raw) code(id uint32) codes.Code {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.codes[id]
}

// until waits for a condition.
func (x *raw) until(what string, cond func() bool) {
	x.t.Helper()
	timer := time.AfterFunc(kubetest.Patience, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.broken = errors.New("timeout")
		x.changed.Broadcast()
	})
	defer timer.Stop()
	x.mu.Lock()
	defer x.mu.Unlock()
	for !cond() {
		require.NoError(x.t, x.broken, what)
		x.changed.Wait()
	}
}

// open opens a stream. The server may have closed the connection.
func (x *raw) open(headers ...[2]string) uint32 {
	id := x.next
	x.next += 2
	x.mu.Lock()
	x.windows[id] = x.initial
	x.mu.Unlock()
	x.write <- struct{}{}
	defer func() { <-x.write }()
	x.header.Reset()
	for _, h := range append([][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", streamPath}, {":authority", "x"}, {"content-type", "application/grpc"}, {"te", "trailers"},
	}, headers...) {
		if h[0] != "" {
			_ = x.hpack.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
	}
	_ = x.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: x.header.Bytes(), EndHeaders: true})
	return id
}

// head is the beginning of a message of n bytes.
func head(n int) []byte { return binary.BigEndian.AppendUint32([]byte{0}, uint32(n)) }

func message(text string) []byte { return append(head(len(text)), text...) }

func (x *raw) data(id uint32, data []byte) error {
	x.write <- struct{}{}
	defer func() { <-x.write }()
	return x.framer.WriteData(id, false, data)
}

func (x *raw) end(id uint32) {
	x.write <- struct{}{}
	defer func() { <-x.write }()
	_ = x.framer.WriteData(id, true, nil)
}

func (x *raw) reset(id uint32) {
	x.write <- struct{}{}
	defer func() { <-x.write }()
	_ = x.framer.WriteRSTStream(id, http2.ErrCodeCancel)
}

// send sends bytes in frames of a size, without waiting for windows.
func (x *raw) send(id uint32, data []byte, frame int) {
	for len(data) > 0 {
		n := min(len(data), frame)
		x.mu.Lock()
		x.conn -= n
		x.windows[id] -= n
		x.mu.Unlock()
		if x.data(id, data[:n]) != nil {
			return
		}
		data = data[n:]
	}
}

// sendInWindow sends bytes as the server allows it, until the connection ends.
func (x *raw) sendInWindow(id uint32, data []byte) {
	for len(data) > 0 {
		x.mu.Lock()
		for x.broken == nil && !x.ended[id] && (x.conn <= 0 || x.windows[id] <= 0) {
			x.changed.Wait()
		}
		n := min(len(data), 16<<10, x.conn, x.windows[id])
		x.conn -= n
		x.windows[id] -= n
		over := x.broken != nil || x.ended[id]
		x.mu.Unlock()
		if over || x.data(id, data[:n]) != nil {
			return
		}
		data = data[n:]
	}
}

// collected collects garbage until no lost buffer counts: gRPC does not return the unread frames of streams that ended. The reader of
// an open connection keeps the last frame until the next one arrives.
func (r *rig) collected(t *testing.T) {
	t.Helper()
	const frame = 16<<10 + limits.BlockOverhead
	r.await(t, "the end of buffers that were lost", func() bool {
		runtime.GC()
		stats := r.GatewayStats()
		return stats.Bytes <= stats.Connections*frame
	})
}
