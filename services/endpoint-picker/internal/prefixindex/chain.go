// Package prefixindex tracks which model servers have which prefixes of prompts in their KV caches.
//
// A prompt is divided into blocks, like in the engines, and each block gets a hash of itself and of all blocks before it: a
// Chain. The Index records which server received which chain, and so the content of its cache: as many blocks as the cache
// has room for, evicting the least recently used first, and the end of a prompt before its start. For another chain it
// returns the length of the prefix that each server has.
//
// It is an estimate: other clients may use the engines, and their order of eviction differs a little.
package prefixindex

import (
	"encoding/binary"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// BlockTokens is the number of tokens in a block: vLLM's default on GPUs, and upstream's. Sizes of caches with other blocks
// are converted. With 8 an index in the same memory holds nearly half the tokens; with 32 up to 31 tokens at the end of a
// prefix look uncached, instead of 15.
const BlockTokens = 16

// BytesPerToken is the estimated length of a token of text: upstream's default, and close to English prose (4.4); source code
// has 2.3. It is fixed, because other boundaries would make other blocks. Package estimate converts blocks to the tokens of a
// model, when it has learned them. Before that lengths of prompts are estimated with the same number, or matched blocks would
// not be their share of a prompt. Without learning, with half of both the index believes that caches hold half as
// much: the mean TTFT in package simulation rises by 32 % (two replicas: 6 %). Double: 3 %.
const BytesPerToken = 4

// DefaultMatchTokens is the default limit of the part of a prompt that is looked up in caches: the context of most of today's long models.
// The hashes of a prompt take an eighth of its text. With a limit of 128 Ki, prompts of 190 Ki tokens looked uncached beyond it: less than
// 1 % of the requests of a recording, but the mean TTFT of 32 servers was 2 to 4 % longer.
const DefaultMatchTokens = 512 << 10

const blockBytes = BlockTokens * BytesPerToken

// BlocksOf returns the number of blocks of a text, rounded up.
func BlocksOf(bytes int) int { return (bytes + blockBytes - 1) / blockBytes }

// pooledBlocks is the capacity of a chain that may stay in a pool, 64 KiB: the hashes of 128 Ki tokens.
const pooledBlocks = 8 << 10

// minBlocks is the initial capacity of a chain: 512 bytes, for a prompt of 1024 tokens.
const minBlocks = 64

// placeholder is the content of a block of a value.
var placeholder [blockBytes]byte

// A Chain contains the hashes of a prompt's blocks. It can be reused for other prompts.
type Chain struct {
	Hashes []uint64
	limit  int    // maximum number of blocks
	last   uint64 // hash of all complete blocks
	rest   []byte // bytes of an incomplete block
}

// Reset starts a prompt with a limit of blocks. Prompts with different seeds share nothing.
func (c *Chain) Reset(seed uint64, limit int) {
	*c = Chain{Hashes: c.Hashes[:0], limit: limit, last: seed, rest: c.rest[:0]}
}

// DropLarge releases the memory of a long chain, so that a pool does not keep it.
func (c *Chain) DropLarge() {
	if cap(c.Hashes) > pooledBlocks {
		c.Hashes = nil
	}
}

// Truncate discards all blocks after a number of blocks. Nothing can be appended afterwards.
func (c *Chain) Truncate(blocks int) {
	if c.limit = blocks; len(c.Hashes) > blocks {
		c.Hashes = c.Hashes[:blocks]
	}
}

// Sum returns a hash of the whole prompt, and the number of tokens that it covers: less than the prompt if that exceeds the limit.
func (c *Chain) Sum() (hash uint64, tokens int) {
	return mixHashes(c.last, xxhash.Sum64(c.rest)), len(c.Hashes)*BlockTokens + len(c.rest)/BytesPerToken
}

// isFull reports whether the chain has reached its limit.
func (c *Chain) isFull() bool { return len(c.Hashes) >= c.limit }

// Write appends text.
func (c *Chain) Write(text []byte) {
	if c.isFull() {
		return
	}
	if len(c.rest) > 0 {
		n := min(blockBytes-len(c.rest), len(text))
		c.rest = append(c.rest, text[:n]...)
		text = text[n:]
		if len(c.rest) < blockBytes {
			return
		}
		c.addBlock(c.rest)
		c.rest = c.rest[:0]
	}
	for len(text) >= blockBytes && !c.isFull() {
		c.addBlock(text[:blockBytes])
		text = text[blockBytes:]
	}
	c.rest = append(c.rest, text[:min(len(text), blockBytes)]...)
}

// WriteValue appends something of which only a hash is known, and its size as that of a text: an image or another medium, a tool, a role.
// All blocks from here on depend on the hash.
func (c *Chain) WriteValue(hash uint64, bytes int) {
	if c.isFull() {
		return
	}
	c.last = mixHashes(c.last, hash)
	for size := bytes; size > 0 && !c.isFull(); size -= blockBytes {
		c.Write(placeholder[:min(size, blockBytes)])
	}
}

// WriteIDs appends token ids, given as a JSON list.
func (c *Chain) WriteIDs(list []byte) {
	var id uint32
	inside := false
	for _, b := range list {
		if c.isFull() {
			return
		}
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

// WritePacked appends token ids, given as packed varints.
func (c *Chain) WritePacked(ids []byte) {
	for len(ids) > 0 && !c.isFull() {
		id, n := binary.Uvarint(ids)
		if n <= 0 {
			return // invalid encoding
		}
		c.writeID(uint32(id))
		ids = ids[n:]
	}
}

func (c *Chain) writeID(id uint32) {
	var b [BytesPerToken]byte
	binary.LittleEndian.PutUint32(b[:], id)
	c.Write(b[:])
}

// WriteHash appends a part of n blocks of which only a hash is known.
func (c *Chain) WriteHash(hash uint64, n int) {
	for ; n > 0 && !c.isFull(); n-- {
		c.addHash(hash)
	}
}

func (c *Chain) addBlock(b []byte) { c.addHash(xxhash.Sum64(b)) }

// addHash appends a block with the given hash.
func (c *Chain) addHash(hash uint64) {
	c.last = mixHashes(c.last, hash)
	if n := len(c.Hashes); n == cap(c.Hashes) { // append would allocate more than the limit, and five times as much in all
		c.Hashes = append(make([]uint64, 0, min(max(2*n, minBlocks), c.limit)), c.Hashes...)
	}
	c.Hashes = append(c.Hashes, c.last)
}

// mixHashes returns the hash of a chain that continues with a block.
func mixHashes(last, block uint64) uint64 {
	const odd = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	return (bits.RotateLeft64(last, 27)*odd ^ block) * odd
}

// Seed returns a seed for a model and the hash of a salt, 0 for none. Prompts with different models or salts must not share blocks.
func Seed(model string, salt uint64) uint64 {
	const odd = 0xc2b2ae3d27d4eb4f // a prime near 2^64 divided by the golden ratio, as in xxhash
	return xxhash.Sum64String(model)*odd ^ salt
}

// HashScheme returns a hash of a fixed prompt. It is the same in processes that give the same prompts the same hashes.
func HashScheme() uint64 {
	var c Chain
	c.Reset(Seed("model", 1), minBlocks)
	c.WriteValue(1, 1)
	c.WriteIDs([]byte("[1, 2, 3]"))
	hash, _ := c.Sum()
	return hash
}

// SeedHashes returns the seed for a prompt of known hashes, from the one for a prompt of text: the two must not share blocks.
func SeedHashes(seed uint64) uint64 { return mixHashes(seed, 0) }
