package grpcserver

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/limits"
)

// TestCountersReturnToZero has hostile clients that do random things, beside a good one that is always served.
func TestCountersReturnToZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { assert.Greater(t, randomPeers(t, overMemory), 20) })
}

// randomPeers returns how often the good client was served beside the others.
func randomPeers(t *testing.T, over overNetwork) (asked int) {
	t.Helper()
	r := over(t, testLimits{MaxBytes: 4 << 20, MaxStreams: 64, MessageTimeout: time.Second, SendTimeout: time.Second})
	actions := []func(x *raw, id uint32, random *rand.Rand){
		func(x *raw, id uint32, _ *rand.Rand) { x.send(id, message("headers"), 100) },
		func(x *raw, id uint32, random *rand.Rand) { x.send(id, message("headers")[:random.IntN(12)], 1) },
		func(x *raw, id uint32, random *rand.Rand) {
			x.send(id, append(head(10_000), zeros[:random.IntN(9000)]...), 1+random.IntN(2000))
		},
		func(x *raw, id uint32, _ *rand.Rand) {
			x.send(id, append(message("headers"), message(strings.Repeat("a", 30<<10))...), 16<<10)
			x.send(id, message("end"), 100)
		},
		func(x *raw, id uint32, _ *rand.Rand) { x.reset(id) },
		func(x *raw, id uint32, _ *rand.Rand) { x.send(id, head(1<<30), 100) },
		func(x *raw, _ uint32, random *rand.Rand) {
			if random.IntN(20) == 0 {
				_ = x.net.Close()
			}
		},
	}
	var peers sync.WaitGroup
	for n := range 4 {
		peers.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			for range 20 {
				x := r.dialRaw(t, hostile, uint32(random.IntN(2)*http2Window))
				if random.IntN(4) > 0 {
					x.read()
				}
				for range 60 {
					actions[random.IntN(len(actions))](x, x.open(), random)
				}
				r.pass(sweepInterval / 5)
			}
		})
	}
	g := r.gateway(t, good)
	done := make(chan struct{})
	go func() { defer close(done); peers.Wait() }()
	for running := true; running; asked++ {
		select {
		case <-done:
			running = false
		default:
			require.Equal(t, served, g.ask(50<<10))
			r.pass(sweepInterval / 10)
		}
	}
	t.Logf("the good peer asked %d times; %+v", asked, r.GatewayStats())
	r.await(t, "the end of all streams", func() bool {
		for _, cl := range r.listClients() {
			cl.closeConns() // again, because some connections were not accepted yet
		}
		return r.GatewayStats().Streams == 0 && r.GatewayStats().Connections == 0
	})
	r.collected(t)
	for _, cl := range r.listClients() {
		for _, resource := range []limits.Resource{limits.Connections, limits.Streams, limits.Bytes} {
			assert.Zero(t, cl.account.CurrentUse(resource), cl.account.Address)
		}
	}
	return asked
}
