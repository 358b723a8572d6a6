package grpcserver

import (
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/mem"

	"fairlead.dev/pkg/connlimit"
	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// BenchmarkTransition is what a stream pays for a new state.
func BenchmarkTransition(b *testing.B) {
	cl := newTestPeer()
	s := newStream(b.Context(), cl, nil)
	b.ReportAllocs()
	for b.Loop() {
		s.EnterState(collecting)
	}
}

// BenchmarkAdmit is what a message pays for the check of the share.
func BenchmarkAdmit(b *testing.B) {
	for _, tt := range []struct {
		name  string
		peers int
		used  int64
	}{{"within", 1, 0}, {"beyond", 1, 2}, {"beyond of 300", 300, 2}} {
		b.Run(tt.name, func(b *testing.B) {
			r := New(Params{Ledger: limits.NewLedger(limits.Limits{Bytes: 1})})
			for i := range tt.peers {
				cl := newClient(r, connlimit.AddressOf(&net.TCPAddr{IP: net.IPv4(10, 0, byte(i>>8), byte(i))}))
				cl.account.AddUse(limits.Bytes, tt.used)
				r.clients[cl.account.Address] = cl
			}
			cl := r.listClients()[0]
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					_ = cl.account.IsBeyondShare(limits.Bytes)
				}
			})
		})
	}
}

// BenchmarkPool is a buffer of a frame and back.
func BenchmarkPool(b *testing.B) {
	pools := map[string]mem.BufferPool{"counting": newTestPeer().account.BufferPool(), "grpc": mem.DefaultBufferPool()}
	for name, pool := range pools {
		for _, size := range []int{300, 16 << 10} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						pool.Put(pool.Get(size))
					}
				})
			})
		}
	}
}

// BenchmarkSweep is one check of all deadlines.
func BenchmarkSweep(b *testing.B) {
	for _, n := range []int{1000, 32_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r := New(Params{Ledger: limits.NewLedger(limits.Limits{})})
			cl := r.clientOf(connlimit.AddressOf(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}))
			for range n {
				s := newStream(b.Context(), cl, nil)
				s.EnterState(collecting)
				cl.addStream(s)
			}
			var scratch []*Stream
			b.ReportAllocs()
			for b.Loop() {
				scratch = r.sweepOnce(scratch)
			}
		})
	}
}
