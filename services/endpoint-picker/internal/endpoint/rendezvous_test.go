package endpoint

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// first returns the server with the highest rank.
func firstServer(key uint64, servers []uint64) uint64 {
	best := servers[0]
	for _, s := range servers {
		if RankServer(key, s) > RankServer(key, best) {
			best = s
		}
	}
	return best
}

func TestRankServer(t *testing.T) {
	t.Parallel()
	var servers []uint64
	for i := range 8 {
		servers = append(servers, hashServer(fmt.Sprint("ns/vllm-", i), 8000))
	}
	counts := map[uint64]int{}
	for key := range uint64(8000) {
		owner := firstServer(key, servers)
		counts[owner]++
		if owner != servers[7] {
			assert.Equal(t, owner, firstServer(key, servers[:7]), "a server that leaves moves only its own keys")
		}
	}
	for _, s := range servers {
		assert.InDelta(t, 1000, counts[s], 150, "keys are spread evenly")
	}
}

// Replicas of different versions agree during a rolling update only if these values never change.
func TestServerHashIsStable(t *testing.T) {
	t.Parallel()
	assert.Equal(t, uint64(0x7b9c7054fa0892d4), hashServer("ns/vllm-0", 8000))
	assert.Equal(t, uint64(0x16b167f1a204727c), RankServer(42, hashServer("ns/vllm-0", 8000)))
	assert.NotEqual(t, hashServer("ns/vllm-0", 8000), hashServer("ns/vllm-0", 8001))
	assert.NotEqual(t, hashServer("ns/vllm-0", 8000), hashServer("ns/vllm-1", 8000))
}
