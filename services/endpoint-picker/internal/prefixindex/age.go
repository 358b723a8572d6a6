package prefixindex

// maxMarks is the number of ages of a cache to remember, at least three for each doubling: from markBlocks up to millions of blocks.
const maxMarks = 64

// markBlocks is the least number of blocks between two marks: a fraction of a prompt.
const markBlocks = 16

// useAges counts, for some times in the past, how many blocks of a cache were used since: the distance of a block whose last use
// was at that time, in an order from the most to the least recently used. Blocks that were used several times count once.
type useAges struct {
	marks [maxMarks]mark // newest first
	count int
}

// mark is one time in the past.
type mark struct {
	at    uint64 // of Index.clock
	newer int    // blocks used since
}

// countUsed counts blocks that are used now, and were last used at a time, 0 for never.
func (a *useAges) countUsed(blocks int, last uint64) {
	for i := range a.marks[:a.count] {
		m := &a.marks[i]
		if m.at < last {
			return // counted already
		}
		m.newer += blocks
	}
}

// startMark begins a new mark if the last one is old enough.
func (a *useAges) startMark(now uint64) {
	if a.count > 0 && a.marks[0].newer < markBlocks {
		return
	}
	a.thinMarks()
	a.count = min(a.count+1, maxMarks)
	copy(a.marks[1:a.count], a.marks[:])
	a.marks[0] = mark{at: now}
}

// thinMarks removes marks that are close to their neighbors.
func (a *useAges) thinMarks() {
	kept := min(a.count, 1)
	for i := 1; i < a.count; i++ {
		if i+1 < a.count && 2*a.marks[i+1].newer < 3*a.marks[kept-1].newer {
			continue
		}
		a.marks[kept] = a.marks[i]
		kept++
	}
	a.count = kept
}

// distanceOf returns the number of blocks used since a time, interpolated between the marks around it.
func (a *useAges) distanceOf(last, now uint64) int {
	newer := mark{at: now}
	for _, m := range a.marks[:a.count] {
		if m.at <= last {
			part := float64(newer.at-last) / float64(max(newer.at-m.at, 1))
			return newer.newer + int(part*float64(m.newer-newer.newer))
		}
		newer = m
	}
	return newer.newer
}

// maxSpans limits the spans of a Reuse: a system prompt, and some turns of a conversation. Further ones join the last.
const maxSpans = 4

// A Span is a part of a chain whose blocks were used together before.
type Span struct {
	End      int32 // in blocks, from the start of the chain
	Distance int32 // blocks of the cache that were used since
	Last     Stamp // of that use
}

// A Reuse describes the part of a chain that a cache had when the chain was used, from the start of the chain.
type Reuse struct {
	spans     [maxSpans]Span
	count     int32
	Resumable int32 // blocks at the start of the chain from whose end the cache was resumable, as for MatchChain
}

// Spans returns the parts in order. Each was used at the same time as the part before it, or earlier.
func (r *Reuse) Spans() []Span { return r.spans[:r.count] }

// Blocks returns the length of the parts.
func (r *Reuse) Blocks() int {
	if r.count == 0 {
		return 0
	}
	return int(r.spans[r.count-1].End)
}

func (r *Reuse) addSpan(s Span) {
	if r.count == maxSpans {
		r.count--
	}
	r.spans[r.count] = s
	r.count++
}

// ExpireUntil removes all blocks of a cache whose last use is not after a time. The cache has shown that it lost them.
func (x *Index) ExpireUntil(c Handle, until Stamp) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.holderOf(c)
	if h == nil {
		return
	}
	for h.blocks > 0 && h.uses.oldestUse().at <= uint64(until) {
		u := h.uses.popOldest()
		h.blocks -= u.blocks
		for n, i := lastNodeOf(u, c.slot); n != nil; n, i = lastNodeOf(u, c.slot) {
			h.blocks -= x.cutResidency(n, i, int(n.run.Load().residencies[i].blocks))
		}
	}
	x.evictBlocks(c.slot, 0)
}
