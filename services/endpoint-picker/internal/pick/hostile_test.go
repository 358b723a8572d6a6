package pick

import (
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/test/apitest"
)

func TestPoolKeepsNoValuesOfARequest(t *testing.T) {
	t.Parallel()
	b, p := replica(), &pickState{}
	b.pickPool = sync.Pool{New: func() any { return p }}
	rc := &request.Context{Input: request.PickInput{Incoming: chat("text", 0), Subset: &scheduling.Subset{}}}
	rc.Input.Incoming.Headers = api.Headers{{Name: api.HeaderFairness, Value: strings.Repeat("a", 1<<20)}}
	require.ErrorIs(t, b.decide(rc).Cause, scheduling.ErrNoneInSubset)
	assert.Equal(t, scheduling.Request{}, p.request)
	assert.Empty(t, p.incoming.Prompt)
	assert.Equal(t, request.PickResult{}, p.result)
	assert.Nil(t, p.input)
}

// BenchmarkPickOfAHostileBody fails above 50 ms of CPU time per MiB.
func BenchmarkPickOfAHostileBody(b *testing.B) {
	const size = 8 << 20
	balancer := replica()
	for _, shape := range apitest.Shapes() {
		b.Run(shape.Name, func(b *testing.B) {
			body := shape.BuildBody(size)
			b.SetBytes(int64(len(body)))
			before := cpuTime(b)
			for b.Loop() {
				rc := &request.Context{Input: request.PickInput{Incoming: api.Incoming{Path: shape.Path, Body: body}}}
				if balancer.decide(rc) == nil {
					rc.ConfirmSent()
					rc.Placements.AnsweringLease().Release()
				}
			}
			perMiB := float64(cpuTime(b)-before) / float64(time.Millisecond) / float64(b.N) / (float64(len(body)) / (1 << 20))
			b.ReportMetric(perMiB, "ms/MiB")
			require.Less(b, perMiB, 50.0)
		})
	}
}

// cpuTime returns the processor time of the process, which does not depend on the load of the machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
