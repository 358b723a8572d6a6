package simulation

// blockTokens is how many tokens a block of a cache has.
const blockTokens = 16

// blockCache is the memory of one model server, with prefix caching as vLLM does it: a block that no request holds keeps
// its content until it is the one that was used longest ago and its place is needed.
type blockCache struct {
	places map[uint64]int32 // by the hash of what is there
	blocks []block          // the last one heads the ring of those that are free, the oldest first
	free   int
}

type block struct {
	hash           uint64 // of its content, 0 if that is not worth keeping
	holders        int
	previous, next int32 // in the ring, if it is free
}

func newBlockCache(n int) *blockCache {
	c := &blockCache{places: map[uint64]int32{}, blocks: make([]block, n+1), free: n}
	for i := range c.blocks {
		c.blocks[i].previous, c.blocks[i].next = int32((i+n)%(n+1)), int32((i+1)%(n+1))
	}
	return c
}

// head is the place of the ring's head.
func (c *blockCache) head() int32 { return int32(len(c.blocks) - 1) }

// match returns how many blocks of a chain are there, from the first on.
func (c *blockCache) match(chain []uint64) int {
	for i, hash := range chain {
		if _, found := c.places[hash]; !found {
			return i
		}
	}
	return len(chain)
}

// acquire takes so many blocks for a request whose prompt has this chain. It returns the blocks and how many of them had
// the right content already. It takes none if there is no room.
func (c *blockCache) acquire(chain []uint64, total int) (held []int32, hit int, ok bool) {
	hit = c.match(chain)
	need := total - hit
	for _, hash := range chain[:hit] {
		if c.blocks[c.places[hash]].holders == 0 {
			need++
		}
	}
	if need > c.free {
		return nil, 0, false
	}
	held = make([]int32, 0, total)
	for _, hash := range chain[:hit] {
		held = append(held, c.hold(c.places[hash]))
	}
	for i := hit; i < total; i++ {
		at := c.hold(c.blocks[c.head()].next)
		c.forget(at)
		if i < len(chain) {
			c.keep(at, chain[i])
		}
		held = append(held, at)
	}
	return held, hit, true
}

// release gives blocks back, the last first, so that the beginning of a prompt outlives what follows it. Now that the
// answer is there too, the chain of both can be found.
func (c *blockCache) release(held []int32, chain []uint64) {
	for i := len(held) - 1; i >= 0; i-- {
		b := &c.blocks[held[i]]
		if b.hash == 0 && i < len(chain) {
			c.keep(held[i], chain[i])
		}
		if b.holders--; b.holders > 0 {
			continue
		}
		head := c.head()
		b.previous, b.next = c.blocks[head].previous, head
		c.blocks[b.previous].next, c.blocks[head].previous = held[i], held[i]
		c.free++
	}
}

// hold takes one block, out of the ring if it is there.
func (c *blockCache) hold(at int32) int32 {
	b := &c.blocks[at]
	if b.holders++; b.holders == 1 {
		c.blocks[b.previous].next, c.blocks[b.next].previous = b.next, b.previous
		c.free--
	}
	return at
}

// keep names the content of a block, unless another has the same.
func (c *blockCache) keep(at int32, hash uint64) {
	if _, found := c.places[hash]; !found {
		c.places[hash], c.blocks[at].hash = at, hash
	}
}

func (c *blockCache) forget(at int32) {
	if hash := c.blocks[at].hash; hash != 0 {
		delete(c.places, hash)
		c.blocks[at].hash = 0
	}
}
