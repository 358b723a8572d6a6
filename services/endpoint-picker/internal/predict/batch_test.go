package predict

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestBatch(t *testing.T) {
	t.Parallel()
	often := func(b *batch, times int, running, waiting float64) {
		for range times {
			b.see(running, waiting)
		}
	}
	tests := []struct {
		name string
		give func(b *batch)
		want float64 // of 10 requests have no place
	}{
		{name: "nothing is known", give: func(*batch) {}},
		{name: "nobody waits", give: func(b *batch) { often(b, 100, 4, 0) }},
		{name: "some wait for a long prompt", give: func(b *batch) { often(b, sureOf, 4, 3) }},
		{name: "some wait all the time", give: func(b *batch) { often(b, sureOf+1, 4, 3) }, want: 6},
		{name: "now and then", give: func(b *batch) {
			for range sureOf + 1 {
				b.see(4, 1)
				b.see(3, 0)
				b.see(2, 1)
			}
		}, want: 6},
		{name: "it was a mistake", give: func(b *batch) { often(b, sureOf+1, 4, 3); b.see(5, 0) }},
		{name: "and there is a limit", give: func(b *batch) { often(b, sureOf+1, 4, 3); often(b, sureOf+1, 8, 1) }, want: 2},
		{name: "that is not reached", give: func(b *batch) { often(b, sureOf+1, 16, 1) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b batch
			tt.give(&b)
			assert.InDelta(t, tt.want, b.over(10), 0)
		})
	}
}

func TestWait_CountsTheEndsThatAFullBatchWaitsFor(t *testing.T) {
	t.Parallel()
	speed := &Speed{Base: 0.010, PerToken: 100e-6}
	s := NewLearner().NewServer()
	page := Page{All: 6, Rate: 10}
	idle := s.Wait(noon, speed, Prompt{Tokens: 100}, page)
	for range sureOf + 1 {
		s.See(4, 1)
	}
	assert.InDelta(t, idle+0.3, s.Wait(noon, speed, Prompt{Tokens: 100}, page), 1e-9, "for three of seven")
	assert.InDelta(t, idle+4*100*100e-6+0.5, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{All: 6, Running: 4, Waiting: 5, Rate: 10}), 1e-9, "the queue is longer than that")
	assert.InDelta(t, idle, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{All: 3, Running: 2, Waiting: 1, Rate: 10}), 1e-9, "who waits is taken next")
	assert.InDelta(t, idle+0.1, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{All: 3, Running: 2, Waiting: 1, KVUsage: 0.9, Rate: 10}), 1e-9, "if there is memory")
	assert.InDelta(t, idle, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{All: 3, Rate: 10}), 1e-9, "there is room")
	assert.InDelta(t, idle, s.Wait(noon, speed, Prompt{Tokens: 100}, Page{All: 6}), 1e-9, "nobody knows how long")
	s.Begin(noon, Prompt{Tokens: 1}, 0)
	assert.InDelta(t, 0.3+0.010+101*100e-6, s.Wait(noon, speed, Prompt{Tokens: 100}, page), 1e-9, "whether one of ours waits or not")
}

func TestLearner_LearnsNothingFromStepsThatOthersShare(t *testing.T) {
	t.Parallel()
	l := NewLearner()
	s := l.NewServer()
	at := 0.0
	serve := func(others float64) { // prompts of all lengths take the same time, as the step is filled up with others'
		for i := range 200 {
			r := s.Begin(after(at-1), Prompt{Tokens: 100 * (i % 20)}, others)
			at += 0.8
			r.First(after(at))
			r.End()
		}
	}
	serve(1)
	shared := l.Speed().Base
	assert.Less(t, shared, 0.3, "the first one began on an idle server")
	serve(0)
	assert.Greater(t, l.Speed().Base, shared+0.2)
}
