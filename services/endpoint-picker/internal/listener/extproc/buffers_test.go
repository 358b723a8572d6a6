package extproc

import (
	"bytes"
	"sync"
	"testing"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// pool is for bodies.
var pool = mem.DefaultBufferPool()

// buffer is one that nobody has to free.
func buffer(s string) mem.Buffer {
	if s == "" {
		return nil
	}
	return mem.SliceBuffer(s)
}

// content is what a buffer holds.
func content(b mem.Buffer) []byte {
	if b == nil {
		return nil
	}
	return b.ReadOnlyData()
}

// readable are replies that can be compared.
func readable(replies []Reply) []Reply {
	var out []Reply
	for _, r := range replies {
		r.Body = buffer(string(content(r.Body)))
		out = append(out, r)
	}
	return out
}

// sendAll frees replies, as gRPC does when they are on their way.
func sendAll(replies []Reply) {
	for i := range replies {
		encodeReply(&replies[i]).Free()
	}
}

// encoded is a reply as a gateway reads it.
func encoded(r *Reply) *extprocv3.ProcessingResponse {
	out := &extprocv3.ProcessingResponse{}
	if err := proto.Unmarshal(encodeReply(r).Materialize(), out); err != nil {
		panic(err)
	}
	return out
}

// decoded is a gateway's message as we read it.
func decoded(t testing.TB, d decoder, in *extprocv3.ProcessingRequest) Message {
	t.Helper()
	raw, err := proto.Marshal(in)
	require.NoError(t, err)
	var m Message
	require.NoError(t, d.decodeMessage(mem.SliceBuffer(raw), &m))
	return m
}

// leakPool lends buffers and knows which have not come back.
type leakPool struct {
	mu  sync.Mutex
	out map[*byte]bool
	all [][]byte
}

// copy returns a buffer of the pool with this content, which must be larger than what gRPC pools.
func (p *leakPool) copy(b []byte) mem.Buffer { return mem.Copy(b, p) }

func (p *leakPool) Get(n int) *[]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out == nil {
		p.out = map[*byte]bool{}
	}
	b := make([]byte, n)
	p.out[&b[0]] = true
	p.all = append(p.all, b)
	return &b
}

// Put takes a buffer back and spoils it, so that who reads it still is found out.
func (p *leakPool) Put(b *[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if whole := (*b)[:1]; !p.out[&whole[0]] {
		panic("a buffer came back twice")
	}
	delete(p.out, &(*b)[0])
	copy(*b, bytes.Repeat([]byte{0xdd}, len(*b)))
}

func (p *leakPool) lent() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.out)
}

func (p *leakPool) last() []byte { return p.all[len(p.all)-1] }
