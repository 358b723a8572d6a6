package modelserver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	usual := Interval{Fastest: 100 * ms, Slowest: time.Second}
	quiet, bad := (*pace).noNews, (*pace).recordFailure
	tests := []struct {
		name string
		give []func(*pace)
		with Interval
		to   attention
		want time.Duration
	}{
		{name: "new", with: usual, to: watched, want: 100 * ms},
		{name: "one page without news", give: []func(*pace){quiet}, with: usual, to: watched, want: 200 * ms},
		{name: "three", give: []func(*pace){quiet, quiet, quiet}, with: usual, to: watched, want: 800 * ms},
		{name: "many", give: []func(*pace){quiet, quiet, quiet, quiet, quiet}, with: usual, to: watched, want: time.Second},
		{name: "our own leases move", give: []func(*pace){quiet, quiet, quiet, quiet, quiet}, with: usual, to: moved, want: 200 * ms},
		{name: "our own leases move, and news", with: usual, to: moved, want: 100 * ms},
		{name: "news", give: []func(*pace){quiet, quiet, (*pace).resetPace}, with: usual, to: watched, want: 100 * ms},
		{name: "news that nobody wants", with: usual, to: unwatched, want: time.Second},
		{name: "first failure", give: []func(*pace){quiet, quiet, quiet, bad}, with: usual, to: watched, want: 100 * ms},
		{name: "third failure", give: []func(*pace){bad, bad, bad}, with: usual, to: watched, want: 400 * ms},
		{
			name: "many failures, recovery is seen within a second", give: []func(*pace){bad, bad, bad, bad, bad, bad, bad, bad},
			with: Interval{Fastest: 100 * ms, Slowest: time.Minute}, to: watched, want: time.Second,
		},
		{name: "failures are watched by us", give: []func(*pace){bad, bad}, with: usual, to: unwatched, want: 200 * ms},
		{name: "recovered", give: []func(*pace){bad, bad, bad, quiet}, with: usual, to: watched, want: 100 * ms},
		{name: "one interval", give: []func(*pace){quiet, quiet}, with: Interval{Fastest: time.Second, Slowest: time.Second}, to: moved, want: time.Second},
		{
			name: "failing where the fastest is slow", give: []func(*pace){bad, bad},
			with: Interval{Fastest: 5 * time.Second, Slowest: 9 * time.Second}, to: watched, want: 5 * time.Second,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var p pace
			for _, step := range tt.give {
				step(&p)
			}
			assert.Equal(t, tt.want, p.scrapeInterval(tt.with, tt.to))
		})
	}
}

func TestPaceNeverLeavesItsRange(t *testing.T) {
	t.Parallel()
	var p pace
	for range 100 { // doubling must not overflow
		p.noNews()
		assert.LessOrEqual(t, p.scrapeInterval(Interval{Fastest: time.Second, Slowest: time.Hour}, watched), time.Hour)
		assert.GreaterOrEqual(t, p.scrapeInterval(Interval{Fastest: time.Second, Slowest: time.Hour}, watched), time.Second)
	}
}

func TestSurprise(t *testing.T) {
	t.Parallel()
	type prediction struct {
		requests float64
		last     endpoint.Gauges
	}
	tests := []struct {
		name string
		give prediction
		page endpoint.Gauges
		want bool
	}{
		{name: "as foreseen", give: prediction{requests: 5}, page: endpoint.Gauges{Running: 5}},
		{name: "requests on their way", give: prediction{requests: 5}, page: endpoint.Gauges{Running: 3}},
		{name: "many on their way to a busy server", give: prediction{requests: 100}, page: endpoint.Gauges{Running: 110}},
		{name: "others' requests", give: prediction{requests: 5}, page: endpoint.Gauges{Running: 9}, want: true},
		{name: "requests have gone", give: prediction{requests: 9}, page: endpoint.Gauges{Running: 5}, want: true},
		{name: "a queue", give: prediction{requests: 9}, page: endpoint.Gauges{Running: 5, Waiting: 4}, want: true},
		{name: "the queue that was", give: prediction{requests: 9, last: endpoint.Gauges{Waiting: 4}}, page: endpoint.Gauges{Running: 5,
			Waiting: 4}},
		{name: "a KV cache that fills", give: prediction{}, page: endpoint.Gauges{KVUsage: 0.2}, want: true},
		{name: "a KV cache that moves", give: prediction{last: endpoint.Gauges{KVUsage: 0.22}}, page: endpoint.Gauges{KVUsage: 0.2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tt.want, isSurprising(tt.give.requests, &tt.give.last, &tt.page))
		})
	}
}
