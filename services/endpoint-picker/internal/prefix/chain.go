// Package prefix remembers which model servers have which beginnings of prompts in their caches.
//
// A prompt is cut into blocks, as the engines cut it, and each block gets a hash that stands for it and for all before
// it: a Chain. The Index is told which server was sent which chain, and so what is in its cache now: as many blocks as
// the cache has room for, those that were used longest ago given up first, and of one prompt the end before the start.
// It then says how much of the beginning of another chain each server has.
//
// It is an estimate: engines may have been asked by others, and give blocks up in an order that is a little different.
package prefix

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// BlockTokens is how many tokens a block has. Caches that are counted in others are converted.
const BlockTokens = 16

// bytesPerToken is what a token of text is taken for. It is fixed, because blocks that are cut elsewhere are other
// blocks.
const bytesPerToken = 4

const blockBytes = BlockTokens * bytesPerToken

// A Chain is the hashes of a prompt's blocks. It can be used for one prompt after the other.
type Chain struct {
	Hashes []uint64
	limit  int    // of blocks
	last   uint64 // hash of all that came
	rest   []byte // bytes that are not a block yet
}

// Reset starts a prompt of so many blocks at most. Prompts of different seeds share nothing.
func (c *Chain) Reset(seed uint64, limit int) {
	*c = Chain{Hashes: c.Hashes[:0], limit: limit, last: seed, rest: c.rest[:0]}
}

// Write goes on with text.
func (c *Chain) Write(text []byte) {
	if len(c.rest) > 0 {
		n := min(blockBytes-len(c.rest), len(text))
		c.rest = append(c.rest, text[:n]...)
		text = text[n:]
		if len(c.rest) < blockBytes {
			return
		}
		c.block(c.rest)
		c.rest = c.rest[:0]
	}
	for len(text) >= blockBytes {
		c.block(text[:blockBytes])
		text = text[blockBytes:]
	}
	c.rest = append(c.rest, text...)
}

// WriteIDs goes on with token ids, given as a JSON list.
func (c *Chain) WriteIDs(list []byte) {
	var id uint32
	inside := false
	for _, b := range list {
		if '0' <= b && b <= '9' {
			id, inside = id*10+uint32(b-'0'), true
			continue
		}
		if inside {
			c.writeID(id)
		}
		id, inside = 0, false
	}
	if inside {
		c.writeID(id)
	}
}

// WritePacked goes on with token ids, given as packed varints.
func (c *Chain) WritePacked(ids []byte) {
	for len(ids) > 0 {
		id, n := binary.Uvarint(ids)
		if n <= 0 {
			return // not a list: it was written by nobody who speaks the format
		}
		c.writeID(uint32(id))
		ids = ids[n:]
	}
}

func (c *Chain) writeID(id uint32) {
	var b [bytesPerToken]byte
	binary.LittleEndian.PutUint32(b[:], id)
	c.Write(b[:])
}

func (c *Chain) block(b []byte) {
	if len(c.Hashes) == c.limit {
		return
	}
	const odd = 0x9e3779b97f4a7c15 // 2^64 by the golden ratio
	c.last = (bits.RotateLeft64(c.last, 27)*odd ^ xxhash.Sum64(b)) * odd
	c.Hashes = append(c.Hashes, c.last)
}

// Seed is a seed of what prompts of different models, or of different salts, must not share.
func Seed(model string, salt []byte) uint64 {
	const odd = 0xc2b2ae3d27d4eb4f // a prime near 2^64 by the golden ratio, as in xxhash
	return xxhash.Sum64String(model)*odd ^ xxhash.Sum64(salt)
}
