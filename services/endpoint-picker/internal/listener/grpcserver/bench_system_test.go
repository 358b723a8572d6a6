//go:build system

package grpcserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

// plainOptions are those of one server for all gateways, without this package.
var plainOptions = []grpc.ServerOption{
	grpc.NumStreamWorkers(64), grpc.StaticStreamWindowSize(256 << 10), grpc.StaticConnWindowSize(4 << 20), grpc.ForceServerCodecV2(plainCodec{}),
}

// plainCodec is rawCodec that does not copy.
type plainCodec struct{ rawCodec }

func (plainCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*mem.Buffer) = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// handlePlain does what service.handle does with a plain stream.
func handlePlain(_ any, stream grpc.ServerStream) error {
	var body mem.BufferSlice
	defer func() { body.Free() }()
	for {
		var message mem.Buffer
		if err := stream.RecvMsg(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch {
		case string(message.ReadOnlyData()) == "headers":
			message.Free()
		case string(message.ReadOnlyData()) == "end":
			message.Free()
			for i := range body {
				if err := stream.SendMsg(body[i]); err != nil {
					return err
				}
				body[i] = mem.SliceBuffer(nil)
			}
			body = nil
			if err := stream.SendMsg("ok"); err != nil {
				return err
			}
		default:
			body = append(body, message)
		}
	}
}

func servePlain(b *testing.B) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	s := grpc.NewServer(plainOptions...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Service", HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: handlePlain}},
	}, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		s.Stop()
		require.NoError(b, <-done)
	})
	return l.Addr().String()
}

func servePeers(b *testing.B, o testLimits) (*rig, string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	return newRig(b, l, o), l.Addr().String()
}

// BenchmarkStream is a request with a body of 5 kB and an answer, client included, by a plain gRPC server and by this package.
func BenchmarkStream(b *testing.B) {
	limits := testLimits{MaxBytes: 256 << 20, MaxStreams: 32 << 10, MessageTimeout: time.Minute, SendTimeout: 20 * time.Second}
	for name, serve := range map[string]func(b *testing.B) string{
		"plain": servePlain,
		"peers": func(b *testing.B) string { _, address := servePeers(b, limits); return address },
	} {
		for _, size := range []int{5_000, 400_000} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { benchmarkStream(b, serve(b), strings.Repeat("a", size)) })
		}
	}
}

func benchmarkStream(b *testing.B, address, body string) {
	b.Helper()
	b.ReportAllocs()
	before := cpuTime(b)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := grpc.NewClient("passthrough:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		for pb.Next() {
			if err := exchange(b, conn, body); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the CPU time of the process, which other processes disturb less than the wall clock.
func cpuTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return u.Utime.Nano() + u.Stime.Nano()
}

func exchange(b *testing.B, conn *grpc.ClientConn, body string) error {
	s, err := conn.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, streamPath)
	if err != nil {
		return err
	}
	for _, m := range []string{"headers", body, "end"} {
		if err := s.SendMsg(m); err != nil {
			return err
		}
	}
	var reply []byte
	for range 2 {
		if err := s.RecvMsg(&reply); err != nil {
			return err
		}
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	if err := s.RecvMsg(&reply); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func inUse() int {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// BenchmarkMemory reports the memory of idle peers and of silent streams, without their clients: those are raw connections.
func BenchmarkMemory(b *testing.B) {
	const n = 500
	b.Run("peer", func(b *testing.B) {
		for b.Loop() {
			r := overLoopback(b, testLimits{}, grpc.NumStreamWorkers(16))
			before := inUse()
			for i := range n {
				r.dialRaw(b, fmt.Sprintf("127.0.%d.%d", 1+i/250, 1+i%250), http2Window)
			}
			for r.GatewayStats().Connections < n {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			b.ReportMetric(float64(inUse()-before)/n, "B/peer")
		}
	})
	b.Run("connection", func(b *testing.B) {
		for b.Loop() {
			r := overLoopback(b, testLimits{})
			before := inUse()
			for range n {
				r.dialRaw(b, good, http2Window)
			}
			for r.GatewayStats().Connections < n {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			b.ReportMetric(float64(inUse()-before)/n, "B/conn")
		}
	})
	b.Run("stream", func(b *testing.B) {
		for b.Loop() {
			r := overLoopback(b, testLimits{})
			x := r.dialRaw(b, good, http2Window)
			x.read()
			before := inUse()
			for range 20 * n {
				x.open()
			}
			for r.GatewayStats().Streams < 20*n {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			b.ReportMetric(float64(inUse()-before)/20/n, "B/stream")
		}
	})
}
