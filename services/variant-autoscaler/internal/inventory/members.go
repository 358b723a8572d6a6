package inventory

import (
	"encoding/binary"
	"iter"
	"math/bits"
)

const wordBits = 64

// nodeMask is a set of nodes, one bit each.
type nodeMask []uint64

func newNodeMask(nodes int) nodeMask { return make(nodeMask, (nodes+wordBits-1)/wordBits) }

func (m nodeMask) addNode(node int) { m[node/wordBits] |= 1 << (node % wordBits) }

// keyWith identifies the nodes with a resource.
func (m nodeMask) keyWith(resource int) string {
	key := []byte{byte(resource)}
	for _, word := range m {
		key = binary.LittleEndian.AppendUint64(key, word)
	}
	return string(key)
}

// allNodes yields the nodes in their order.
func (m nodeMask) allNodes() iter.Seq[int] {
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

func (m nodeMask) hasCommon(other nodeMask) bool {
	for w := range m {
		if m[w]&other[w] != 0 {
			return true
		}
	}
	return false
}

func (m nodeMask) isSubset(other nodeMask) bool {
	for w := range m {
		if m[w]&^other[w] != 0 {
			return false
		}
	}
	return true
}
