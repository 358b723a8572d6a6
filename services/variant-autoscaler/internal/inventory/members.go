package inventory

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

const wordBits = 64

// members is a set of nodes, one bit each.
type members []uint64

func newMembers(nodes int) members { return make(members, (nodes+wordBits-1)/wordBits) }

func (m members) add(node int) { m[node/wordBits] |= 1 << (node % wordBits) }

// key identifies the nodes with a resource.
func (m members) key(resource int) string {
	key := []byte{byte(resource)}
	for _, word := range m {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	return string(key)
}

// all yields the nodes in their order.
func (m members) all() iter.Seq[int] {
	return func(yield func(int) bool) {
		for w, word := range m {
			for ; word != 0; word &= word - 1 {
				if !yield(w*wordBits + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}

func (m members) overlaps(other members) bool {
	for w := range m {
		if m[w]&other[w] != 0 {
			return true
		}
	}
	return false
}

func (m members) within(other members) bool {
	for w := range m {
		if m[w]&^other[w] != 0 {
			return false
		}
	}
	return true
}
