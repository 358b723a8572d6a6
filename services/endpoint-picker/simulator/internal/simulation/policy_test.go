package simulation

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestRoundRobin(t *testing.T) {
	t.Parallel()
	f := &fleet{servers: []*server{{number: 0}, {number: 1}, {number: 2, dead: true}}}
	c := RoundRobin().start(f)
	var order []int
	for range 5 {
		p, ok := c.choosePlacement(nil)
		assert.True(t, ok)
		order = append(order, p.targetServer().number)
	}
	assert.Equal(t, []int{0, 1, 0, 1, 0}, order)
	f.servers[0].dead, f.servers[1].dead = true, true
	_, ok := c.choosePlacement(nil)
	assert.False(t, ok)
}

func TestRequestsPerServer(t *testing.T) {
	t.Parallel()
	trace := short(find(t, StandardScenarios(), "uniform")).withServers(4).Trace(1)
	result := trace.Run(RoundRobin())
	least, most := result.PerServer()
	assert.InDelta(t, least, most, 10)
	assert.InDelta(t, result.Requests(), 4*least, 40)
	none := &Result{}
	least, most = none.PerServer()
	assert.Zero(t, least+most)
}
