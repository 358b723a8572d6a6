package engine

// A blockCache is the KV cache of one server with vLLM's prefix caching. The references of a block count the requests that hold
// it. A block without references is free, and keeps its content until it is the least recently used free block and a request
// needs a block. A hash of the block and all blocks before it identifies the content.
//
//	              refs > 0            refs = 0
//	hash unset    being filled        empty
//	hash set      shared, findable    evictable, findable
type blockCache struct {
	byHash map[uint64]int32
	blocks []cacheBlock // the last one is the head of the ring of free blocks, least recently used first
	free   int
}

type cacheBlock struct {
	hash       uint64 // 0: unset
	refs       int
	prev, next int32 // in the ring, when free
}

func newBlockCache(n int) *blockCache {
	c := &blockCache{byHash: make(map[uint64]int32), blocks: make([]cacheBlock, n+1)}
	c.blocks[n] = cacheBlock{prev: int32(n), next: int32(n)}
	for i := range int32(n) {
		c.pushFree(i)
	}
	return c
}

func (c *blockCache) head() int32 { return int32(len(c.blocks) - 1) }

func (c *blockCache) size() int { return len(c.blocks) - 1 }

// match returns the number of leading blocks of the chain that are in the cache.
func (c *blockCache) match(chain []uint64) int {
	for i, hash := range chain {
		if _, ok := c.byHash[hash]; !ok {
			return i
		}
	}
	return len(chain)
}

// acquire holds the blocks of cached, which must all be in the cache, and free blocks, total blocks together. If there are not
// enough free blocks, it holds nothing and returns false.
func (c *blockCache) acquire(cached []uint64, total int) ([]int32, bool) {
	need := total - len(cached)
	for _, hash := range cached {
		if c.blocks[c.byHash[hash]].refs == 0 {
			need++
		}
	}
	if need > c.free {
		return nil, false
	}
	held := make([]int32, 0, total)
	for _, hash := range cached {
		i := c.byHash[hash]
		c.hold(i)
		held = append(held, i)
	}
	return c.extend(held, total)
}

// extend evicts and holds free blocks until held has total blocks. If there are not enough free blocks, it does nothing and returns
// false.
func (c *blockCache) extend(held []int32, total int) ([]int32, bool) {
	if total-len(held) > c.free {
		return held, false
	}
	for len(held) < total {
		i := c.blocks[c.head()].next
		c.forget(i)
		c.hold(i)
		held = append(held, i)
	}
	return held, true
}

// publish makes block i findable under hash. If another block already has this content, publish does nothing.
func (c *blockCache) publish(i int32, hash uint64) {
	if _, ok := c.byHash[hash]; ok || c.blocks[i].hash != 0 {
		return
	}
	c.byHash[hash] = i
	c.blocks[i].hash = hash
}

// release releases blocks, the last first, so that the cache evicts the tail of a request before its prefix.
func (c *blockCache) release(held []int32) {
	for n := len(held) - 1; n >= 0; n-- {
		i := held[n]
		if c.blocks[i].refs--; c.blocks[i].refs == 0 {
			c.pushFree(i)
		}
	}
}

func (c *blockCache) hold(i int32) {
	b := &c.blocks[i]
	if b.refs++; b.refs == 1 {
		c.blocks[b.prev].next, c.blocks[b.next].prev = b.next, b.prev
		c.free--
	}
}

func (c *blockCache) pushFree(i int32) {
	head := c.head()
	last := c.blocks[head].prev
	c.blocks[i].prev, c.blocks[i].next = last, head
	c.blocks[last].next, c.blocks[head].prev = i, i
	c.free++
}

func (c *blockCache) forget(i int32) {
	if hash := c.blocks[i].hash; hash != 0 {
		delete(c.byHash, hash)
		c.blocks[i].hash = 0
	}
}
