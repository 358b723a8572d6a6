package estimate

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func observeOften(b *batchSize, times int, running, waiting float64) {
	for range times {
		b.observePage(running, waiting)
	}
}

func TestBatchSize(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give func(b *batchSize)
		want float64 // excess of 10 requests
	}{
		{name: "no page", give: func(*batchSize) {}},
		{name: "no queue", give: func(b *batchSize) { observeOften(b, 100, 4, 0) }},
		{name: "queue behind a long prompt", give: func(b *batchSize) { observeOften(b, batchPages, 4, 3) }},
		{name: "constant queue", give: func(b *batchSize) { observeOften(b, batchPages+1, 4, 3) }, want: 6},
		{name: "repeated queue", give: func(b *batchSize) {
			for range batchPages + 1 {
				b.observePage(4, 1)
				b.observePage(3, 0)
				b.observePage(2, 1)
			}
		}, want: 6},
		{name: "larger batch", give: func(b *batchSize) { observeOften(b, batchPages+1, 4, 3); b.observePage(5, 0) }},
		{name: "larger batch with a queue", give: func(b *batchSize) { observeOften(b, batchPages+1, 4, 3); observeOften(b, batchPages+1, 8, 1) }, want: 2},
		{name: "large batch", give: func(b *batchSize) { observeOften(b, batchPages+1, 16, 1) }},
		{name: "one wrong page", give: func(b *batchSize) {
			b.observePage(1000, 1)
			observeOften(b, batchMemory+batchPages, 4, 3)
		}, want: 6},
		{name: "restart with a smaller batch", give: func(b *batchSize) {
			observeOften(b, batchPages+1, 8, 3)
			observeOften(b, batchMemory+batchPages, 4, 3)
		}, want: 6},
		{name: "quiet for long", give: func(b *batchSize) {
			observeOften(b, batchPages+1, 8, 3)
			observeOften(b, 2*batchMemory, 4, 0)
		}, want: 2},
		{name: "the size is confirmed now and then", give: func(b *batchSize) {
			for range 10 {
				observeOften(b, batchPages+1, 8, 3)
				observeOften(b, batchMemory-1, 4, 3)
			}
		}, want: 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b batchSize
			tt.give(&b)
			assert.InDelta(t, tt.want, b.excessRequests(10), 0)
		})
	}
}

func TestTTFT_WaitsForRoomInAFullBatch(t *testing.T) {
	t.Parallel()
	costs := &Costs{Base: 0.010, PerToken: 100e-6}
	s := newTestServer()
	remaining := s.estimator.learner.times.remaining()
	ttft := func(l serverLoad) float64 { return s.ttftAfter(0, costs, 100, l) }
	idle := ttft(serverLoad{requests: 6})
	observeOften(&s.batch, batchPages+1, 4, 1)
	assert.InDelta(t, idle+remaining*(1./6+1./5+1./4), ttft(serverLoad{requests: 6}), 1e-9, "three of seven have no place")
	assert.InDelta(t, idle, ttft(serverLoad{requests: 3}), 1e-9, "there is room")
	assert.InDelta(t, idle, ttft(serverLoad{requests: 3, waiting: 1, kvUsage: 0.7}), 1e-9, "the queue waits for prefill only")
	assert.InDelta(t, idle+remaining/3, ttft(serverLoad{requests: 3, waiting: 1, kvUsage: 0.9}), 1e-9, "the queue waits for memory")
	s.begin(noon, Prefill{Tokens: 1}, 0)
	assert.InDelta(t, remaining*(1./6+1./5+1./4)+0.010+101*100e-6, ttft(serverLoad{requests: 6}), 1e-9,
		"whether one of our requests waits or not")
}
