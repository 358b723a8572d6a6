//go:build system

package replicas

import (
	"syscall"
	"testing"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/estimate"
)

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // the arguments are valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkReplicas has 500 requests per second at one replica, with prompts of 5 kB, and one replica that reads their events.
func BenchmarkReplicas(b *testing.B) {
	const between, answerAfter = 2 * time.Millisecond, 1 * time.Millisecond
	sender, reader := listening(b, nil), listening(b, nil)
	sender.start(b)
	reader.start(b, sender.address)
	eventually(b, func() bool { return reader.member.connected.Load() == 1 && reader.member.CheckReady() == nil }, "connected")
	chain, e, publish := make([]uint64, 78), sender.endpoint, sender.member.publisher.PublishEvent
	b.ReportAllocs()
	var request uint64
	before := processorTime()
	for b.Loop() {
		request++
		for i := range chain {
			chain[i] = request*uint64(len(chain)) + uint64(i)
		}
		publish(estimate.Event{Kind: estimate.EventBegun, Request: request, Endpoint: e, Tokens: 1250, Answer: estimate.Streamed})
		publish(estimate.Event{Kind: estimate.EventCached, Endpoint: e, Tokens: 1250, Chain: chain})
		time.Sleep(answerAfter)
		publish(estimate.Event{Kind: estimate.EventFirst, Request: request})
		publish(estimate.Event{Kind: estimate.EventAnswered, Endpoint: e, Tokens: 100})
		publish(estimate.Event{Kind: estimate.EventEnded, Request: request})
		time.Sleep(between - answerAfter)
	}
	spent := processorTime() - before
	eventually(b, func() bool { return reader.member.received.Load() >= int64(5*request) }, "received")
	b.ReportMetric(float64(spent.Microseconds())/float64(request), "cpu-µs/request")
}
