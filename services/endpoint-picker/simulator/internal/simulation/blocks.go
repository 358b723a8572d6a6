package simulation

import "slices"

// blockCache is the memory of one model server, with prefix caching as in vLLM: a block without a holder keeps its content
// until it is evicted, least recently used first.
type blockCache struct {
	places []int32 // by content: its block, or nowhere
	blocks []block // the last one is the head of the ring of free blocks, oldest first
	free   int
}

type block struct {
	content        int32 // or nothing
	holders        int
	previous, next int32 // in the ring, if free
	end            bool  // a prompt ended with it, or left an earlier one after it
}

const (
	nowhere = -1
	nothing = -1 // no content to keep
)

// newBlockCache returns a cache with a number of blocks and of possible contents.
func newBlockCache(size, contents int) *blockCache {
	c := &blockCache{places: slices.Repeat([]int32{nowhere}, contents), blocks: make([]block, size+1), free: size}
	for i := range c.blocks {
		c.blocks[i] = block{content: nothing, previous: int32((i + size) % (size + 1)), next: int32((i + 1) % (size + 1))}
	}
	return c
}

// ringHead returns the index of the ring's head.
func (c *blockCache) ringHead() int32 { return int32(len(c.blocks) - 1) }

// matchChain returns the number of cached blocks of a chain, from the start.
func (c *blockCache) matchChain(chain []int32) int {
	for i, content := range chain {
		if c.places[content] == nowhere {
			return i
		}
	}
	return len(chain)
}

// lastEnd returns the number of cached blocks up to the last end of a prompt.
func (c *blockCache) lastEnd(cached []int32) int {
	for i, content := range slices.Backward(cached) {
		if c.blocks[c.places[content]].end {
			return i + 1
		}
	}
	return 0
}

// keepEnd records that a prompt ended with cached blocks, or left an earlier one after them.
func (c *blockCache) keepEnd(cached []int32) {
	if n := len(cached); n > 0 && c.places[cached[n-1]] != nowhere {
		c.blocks[c.places[cached[n-1]]].end = true
	}
}

// acquireBlocks allocates blocks for a request with this prompt chain. It returns the blocks, and how many of them already had the
// right content. It allocates none if there is not enough room.
func (c *blockCache) acquireBlocks(chain []int32, total int) (held []int32, hit int, ok bool) {
	held = make([]int32, 0, total)
	need := total
	for _, content := range chain {
		at := c.places[content]
		if at == nowhere {
			break
		}
		if c.blocks[at].holders > 0 {
			need--
		}
		held = append(held, at)
	}
	if need > c.free {
		return nil, 0, false
	}
	for _, at := range held {
		c.addHolder(at)
	}
	hit = len(held)
	for i := hit; i < total; i++ {
		at := c.blocks[c.ringHead()].next
		c.addHolder(at)
		c.clearContent(at)
		if i < len(chain) {
			c.setContent(at, chain[i])
		}
		held = append(held, at)
	}
	return held, hit, true
}

// releaseBlocks frees blocks, the last first, so that the start of a prompt outlives its end. From now on the chain of prompt and
// answer can be found.
func (c *blockCache) releaseBlocks(held []int32, chain []int32) {
	for i := len(held) - 1; i >= 0; i-- {
		b := &c.blocks[held[i]]
		if b.content == nothing && i < len(chain) {
			c.setContent(held[i], chain[i])
		}
		if b.holders--; b.holders > 0 {
			continue
		}
		head := c.ringHead()
		b.previous, b.next = c.blocks[head].previous, head
		c.blocks[b.previous].next, c.blocks[head].previous = held[i], held[i]
		c.free++
	}
}

// addHolder takes one block, out of the ring if it is free.
func (c *blockCache) addHolder(at int32) {
	b := &c.blocks[at]
	if b.holders++; b.holders == 1 {
		c.blocks[b.previous].next, c.blocks[b.next].previous = b.next, b.previous
		c.free--
	}
}

// setContent records the content of a block, unless another block has the same.
func (c *blockCache) setContent(at, content int32) {
	if c.places[content] == nowhere {
		c.places[content], c.blocks[at].content = at, content
	}
}

func (c *blockCache) clearContent(at int32) {
	if content := c.blocks[at].content; content != nothing {
		c.places[content], c.blocks[at].content, c.blocks[at].end = nowhere, nothing, false
	}
}
