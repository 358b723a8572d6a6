package rendezvous_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"

	"fairlead.dev/services/endpoint-picker/internal/rendezvous"
)

// first returns the server with the highest rank.
func first(key uint64, servers []uint64) uint64 {
	best := servers[0]
	for _, s := range servers {
		if rendezvous.Rank(key, s) > rendezvous.Rank(key, best) {
			best = s
		}
	}
	return best
}

func TestRank(t *testing.T) {
	t.Parallel()
	var servers []uint64
	for i := range 8 {
		servers = append(servers, rendezvous.Hash(fmt.Sprint("ns/vllm-", i), 8000))
	}
	counts := map[uint64]int{}
	for key := range uint64(8000) {
		owner := first(key, servers)
		counts[owner]++
		if owner != servers[7] {
			assert.Equal(t, owner, first(key, servers[:7]), "a server that leaves moves only its own keys")
		}
	}
	for _, s := range servers {
		assert.InDelta(t, 1000, counts[s], 150, "keys are spread evenly")
	}
}

// Replicas of different versions agree during a rolling update only if these values never change.
func TestHashIsStable(t *testing.T) {
	t.Parallel()
	assert.Equal(t, uint64(0x7b9c7054fa0892d4), rendezvous.Hash("ns/vllm-0", 8000))
	assert.Equal(t, uint64(0x16b167f1a204727c), rendezvous.Rank(42, rendezvous.Hash("ns/vllm-0", 8000)))
	assert.NotEqual(t, rendezvous.Hash("ns/vllm-0", 8000), rendezvous.Hash("ns/vllm-0", 8001))
	assert.NotEqual(t, rendezvous.Hash("ns/vllm-0", 8000), rendezvous.Hash("ns/vllm-1", 8000))
}
