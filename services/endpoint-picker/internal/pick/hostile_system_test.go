//go:build system

package pick

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

const (
	// perByte is the maximum memory of a pick, as a multiple of its body.
	perByte = 4
	// perPick is the maximum memory of a pick, however large its body is.
	perPick = 1 << 20
	// leastPerPick is the memory that a pick may take for the smallest body: its hashes, which an image has many of in a few
	// bytes, and the candidates.
	leastPerPick = 160 << 10
	// pooledPerPick is the maximum memory of a pick that may stay in the pool.
	pooledPerPick = 160 << 10
)

// cost is the memory of one pick.
type cost struct {
	allocated int // in all, also what was free again before the end
	stack     int // of its goroutine
	pooled    int // what stays
}

// measure picks an endpoint for a body with fresh memory. It must not run in parallel with other tests.
func measure(b *Balancer, shape apitest.Shape, size int) cost {
	var before, during, after runtime.MemStats
	p := &pickState{}
	b.pickPool = sync.Pool{New: func() any { return p }}
	collect := func(s *runtime.MemStats) {
		runtime.GC()
		runtime.ReadMemStats(s)
	}
	collect(&before)
	kept := int(before.HeapAlloc)
	body := shape.BuildBody(size)
	collect(&before)
	picked, measured := make(chan *request.Context), make(chan bool)
	go func() {
		rc := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Path: shape.Path, Body: body}}}
		_ = b.decide(rc) // a refusal costs no less
		picked <- rc
		<-measured
	}()
	rc := <-picked
	runtime.ReadMemStats(&during)
	measured <- true
	rc.EndRequest(nil)
	body, rc = nil, nil
	collect(&after)
	runtime.KeepAlive(p)
	return cost{
		allocated: int(during.TotalAlloc - before.TotalAlloc), stack: int(during.StackInuse) - int(before.StackInuse),
		pooled: int(after.HeapAlloc) - kept,
	}
}

func TestPickOfAHostileBodyTakesLittleMemory(t *testing.T) {
	b := replica()
	for _, size := range []int{1 << 10, 64 << 10, 1 << 20, 8 << 20} {
		most := cost{}
		for _, shape := range apitest.Shapes() {
			c := measure(b, shape, size)
			name := fmt.Sprintf("%s, %d KiB", shape.Name, size>>10)
			assert.LessOrEqual(t, c.allocated, min(perByte*size+leastPerPick, perPick), "%s: allocated", name)
			assert.LessOrEqual(t, c.stack, 64<<10, "%s: stack", name)
			assert.LessOrEqual(t, c.pooled, pooledPerPick, "%s: pooled", name)
			most = cost{max(most.allocated, c.allocated), max(most.stack, c.stack), max(most.pooled, c.pooled)}
		}
		t.Logf("%d KiB: at most %+v", size>>10, most)
	}
}
