package estimate

import (
	"math/bits"
	"sync"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// cacheFit learns how much of its prompts a server keeps, from what it reports: for each request the cached tokens in the usage of
// the answer, or else the hits and queries of all its requests on its pages.
//
// A placement had a part of its prompt in the index, at a distance: the number of blocks that the server used since it last used
// these. Blocks that were really cached are hits at their distance, the others are misses. A cache that evicts its least recently
// used blocks has hits up to its size and misses beyond it, so the size that fits best has the fewest misses below it and hits
// above it. Without evidence it is the size on the page, and never more. A server that keeps nothing fits best with no blocks.
//
// Evidence is forgotten, so a larger size is tried again from time to time, which costs a few misses. Requests that find more
// than expected make the server forget faster what it missed.
type cacheFit struct {
	mu      sync.Mutex
	hits    weights
	misses  weights
	size    int               // the size that fits best, in blocks; unlimited if nothing contradicts the page
	reports bool              // an answer reported more than 0 cached tokens
	recent  float64           // share of expected tokens that were found, of the last requests
	missed  prefixindex.Stamp // the use of the first of them of which nothing was found since
	window  comparisonWindow
	pending [maxPending]pendingPrompt // newest at next-1
	next    int

	computed prefixindex.Stamp // prompts that were placed up to here are computed
	totals   endpoint.PrefixTokens
	ends     keptEnds
}

// unlimited is the size of a cache without evidence against its page.
const unlimited = 1 << 30

// weights are evidence by distance.
type weights [distances]float64

// pendingPrompt is a prompt whose blocks from some block on are new to the server, and not computed yet.
type pendingPrompt struct {
	used  prefixindex.Stamp
	from  int32  // blocks
	first uint64 // hash of the first new block
}

// comparisonWindow collects what was expected since the page on which it began.
type comparisonWindow struct {
	startTime     time.Time
	queries, hits float64 // on that page
	counted       bool    // there was one
	restored      bool    // the last process saw it: what came since then is not known
	reported      bool    // answers reported cached tokens
	usage         bool    // answers reported the tokens of prompts
	requests      float64
	prompt        float64 // tokens of prompts
	text, other   float64 // the same without learned ratios, of texts and of other parts
	remote        float64 // the same of prompts that other replicas of the picker placed
	cached        float64 // expected to be cached, by the index
	expected      float64 // the same, and at the owner
	byDistance    weights // tokens of cached that are evidence
	ends          endTokens
}

func newCacheFit() *cacheFit { return &cacheFit{size: unlimited, recent: 1} }

// bucketOf returns the index of a distance in weights: distancesPerOctave for each doubling.
func bucketOf(blocks int) int {
	n := uint(max(blocks, 1))
	octave := bits.Len(n) - 1
	return min(octave*distancesPerOctave+int(n<<2>>octave&(distancesPerOctave-1)), distances-1)
}

// bucketStart returns the least distance of a bucket.
func bucketStart(i int) int {
	return (distancesPerOctave + i%distancesPerOctave) << (i / distancesPerOctave) >> 2
}

// bestSize returns the size with the least sum of misses below and hits above it. page is the size that the page claims.
func (f *cacheFit) bestSize(page int) int {
	least, best, sum := 0.0, unlimited, 0.0
	top := bucketOf(page)
	for i := top; i >= 0; i-- { // sum: of this size, less that of the page's
		prior := priorHits
		if i <= top-priorNear {
			prior = priorFar
		}
		sum += f.hits[i] + prior - f.misses[i]
		if sum < least {
			least, best = sum, bucketStart(i)
		}
	}
	if best == 1 {
		return 0
	}
	return best
}

// decayEvidence lets evidence of a number of earlier requests fade.
func (f *cacheFit) decayEvidence(requests float64) {
	keep := max(1-requests/fitMemory, 0)
	for i := range f.hits {
		f.hits[i] *= keep
		f.misses[i] *= keep
	}
}

// forgetMisses forgets misses beyond the current size: the server had more than expected.
func (f *cacheFit) forgetMisses() {
	for i := bucketOf(f.size); i < distances; i++ {
		f.misses[i] *= surplusKeep
	}
}

// forgetSize forgets all evidence of the size: it came from other expectations than those from now on.
func (f *cacheFit) forgetSize() {
	f.hits, f.misses, f.size, f.recent, f.missed = weights{}, weights{}, unlimited, 1, 0
	f.window.restored = true
}

// addPending records a prompt whose blocks from some block on are computed from now on.
func (f *cacheFit) addPending(used prefixindex.Stamp, chain []uint64, from int) {
	if from < len(chain) {
		f.pending[f.next%maxPending] = pendingPrompt{used: used, from: int32(from), first: chain[from]}
		f.next++
	}
}

// settledBlocks returns the number of blocks at the start of a chain that are not being computed now.
func (f *cacheFit) settledBlocks(chain []uint64, blocks int) int {
	for i := f.next; i > max(f.next-maxPending, 0); i-- {
		p := &f.pending[(i-1)%maxPending]
		if p.used <= f.computed {
			break
		}
		if int(p.from) < blocks && chain[p.from] == p.first {
			blocks = int(p.from)
		}
	}
	return blocks
}

// An Expectation is what was expected of one prompt when it was placed, to be compared with what its server reports. The zero
// Expectation expects nothing.
type Expectation struct {
	server   *Server // nil if the prompt moved to another server, which says nothing of this one
	used     prefixindex.Stamp
	size     PromptSize
	tokens   int   // of the prompt
	cached   int   // tokens in the index
	expected int   // the same, and at the owner
	history  int   // tokens up to the end of the last answer of its conversation
	sent     int   // tokens that the server got before
	ends     int   // the part of sent that it has if it keeps ends only
	settled  int32 // blocks of it that were computed before
	reuse    prefixindex.Reuse
}

// eachSpan calls f for the settled spans of an expectation: their tokens, and the distance of their start.
func (e *Expectation) eachSpan(f func(from, to, distance float64)) {
	start, perBlock := int32(0), e.size.PerBlock
	for _, span := range e.reuse.Spans() {
		from, to := float64(start)*perBlock, float64(min(span.End, e.settled))*perBlock
		if to = min(to, float64(e.cached)); to > from {
			f(from, to, float64(span.Distance))
		}
		start = span.End
	}
}

// recordPlacement records what was expected of a prompt.
func (f *cacheFit) recordPlacement(e *Expectation, chain []uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	had := e.reuse.Blocks()
	e.settled = int32(f.settledBlocks(chain, had))
	f.addPending(e.used, chain, had)
	w := &f.window
	w.requests++
	w.prompt += float64(e.tokens)
	w.text += float64(e.size.Text)
	w.other += float64(e.size.Other)
	w.cached += float64(e.cached)
	w.expected += float64(e.expected)
	w.ends.addPrompt(e)
	e.eachSpan(func(from, to, distance float64) {
		w.byDistance[bucketOf(int(distance+(to-from)/e.size.PerBlock/2))] += to - from
	})
}

// addRemoteTokens records the tokens of a prompt that another replica of the picker placed.
func (f *cacheFit) addRemoteTokens(tokens float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.remote += tokens
}

// markComputed records that the answer to a placed prompt has begun. Engines compute prompts in order.
func (f *cacheFit) markComputed(used prefixindex.Stamp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.computed = max(f.computed, used)
}

// markUsageReported records that answers report the tokens of prompts.
func (f *cacheFit) markUsageReported() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window.usage = true
}

// fitContext is what a fit knows of its surroundings.
type fitContext struct {
	claimed int  // the size of the cache according to its page, in blocks
	alone   bool // this picker places nearly all requests, so a server has nothing in its cache that it does not know
	sparse  bool // some server of the pool has shown that it keeps only ends
}

// compareUsage compares an expectation with the cached tokens in the usage of the answer. It returns the time up to which the server
// has lost what it used, 0 if it has not.
//
// Some servers and proxies write cached_tokens: 0 into every answer, whatever is cached. Zeros of a server that never reported
// anything else are no evidence: its page decides, if that has counters. vLLM omits the field instead of writing 0 (compareOmitted).
func (f *cacheFit) compareUsage(e *Expectation, prompt, cached int, p fitContext) (lost prefixindex.Stamp) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reports = f.reports || cached > 0; !f.reports {
		return 0
	}
	f.window.reported = true
	f.addTotals(e, prompt, cached)
	if !e.size.ChainComplete {
		return 0
	}
	f.decayEvidence(1)
	got, total := float64(cached), float64(max(e.tokens, 1))
	if f.ends.comparePrompt(e, got, p) {
		f.forgetSize()
	}
	if f.ends.only.Load() && e.cached > e.ends {
		return 0 // it was expected before that was known
	}
	found, expected := 0.0, 0.0
	e.eachSpan(func(from, to, distance float64) {
		hit := min(max(got-from, 0), to-from)
		miss := to - from - hit
		reach := distance + hit/e.size.PerBlock
		f.hits[bucketOf(int(distance+hit/e.size.PerBlock/2))] += hit / total
		f.misses[bucketOf(int(reach+miss/e.size.PerBlock/2))] += miss / total
		found, expected = found+hit, expected+to-from
	})
	known := p.alone || got > float64(f.size)*e.size.PerBlock // no cache has more than its size
	if known && got > float64(max(e.cached, e.history))+surplusPart*total {
		f.forgetMisses()
	}
	f.size = f.bestSize(p.claimed)
	return f.findLoss(e, found, expected)
}

// findLoss finds out whether a server has lost all that it had: then nothing of several prompts in a row is found. It returns
// the use of the first of them: what was used before is lost.
func (f *cacheFit) findLoss(e *Expectation, found, expected float64) prefixindex.Stamp {
	if expected <= 0 {
		return 0
	}
	f.recent += recentWeight * (found/expected - f.recent)
	if found > 0 {
		f.missed = 0
		return 0
	}
	if f.missed == 0 {
		f.missed = e.used
	}
	if f.recent >= recentLost {
		return 0
	}
	lost := f.missed
	f.missed, f.recent = 0, 1
	return lost
}

// pageResult is what a page showed.
type pageResult struct {
	restarted       bool    // its counters began again: the cache is empty
	text, textCount float64 // tokens of texts without a learned ratio, and those that the server counted; 0 if it shows none
}

// observePage compares what was expected since an earlier page with its counters of hits and queries. The share of our requests is
// assumed to have the hit rate of all.
func (f *cacheFit) observePage(next *endpoint.Sample, p fitContext) (r pageResult) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !next.Counted {
		return r
	}
	w := &f.window
	queries, hits := next.Queries-w.queries, next.Hits-w.hits
	switch {
	case !w.counted:
	case queries < 0 || hits < 0:
		r.restarted = true
		f.ends.forget()
	case w.restored:
	case !w.isComplete(next.At, queries, hits):
		return r
	default:
		if !w.reported {
			f.compareCounters(queries, hits, p)
		}
		ownQueries := queries * (w.text + w.other) / (w.text + w.other + w.remote)
		if p.alone && !w.usage && w.text >= mostlyText*w.other && ownQueries > w.other {
			r.text, r.textCount = w.text, ownQueries-w.other
		}
	}
	f.window = comparisonWindow{startTime: next.At, queries: next.Queries, hits: next.Hits, counted: true}
	return r
}

// restoreCounters makes the first page show whether the server has restarted since the last process saw these counters.
func (f *cacheFit) restoreCounters(queries, hits float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.window = comparisonWindow{queries: queries, hits: hits, counted: true, restored: true}
}

// isComplete reports whether a window has enough requests, and its page most of their prompts. Few are enough to see that nothing
// was found.
func (w *comparisonWindow) isComplete(now time.Time, queries, hits float64) bool {
	slow := hits == 0 || now.Sub(w.startTime).Seconds() >= windowSeconds
	enough := w.requests >= windowRequests || w.requests >= fewRequests && slow
	return enough && queries*windowLag >= w.prompt
}

// compareCounters distributes the hits over what was expected, from the least distance up: the blocks used last are the last to be
// evicted.
func (f *cacheFit) compareCounters(queries, hits float64, p fitContext) {
	w := &f.window
	rate := min(hits/queries, 1)
	got := rate * w.prompt
	f.totals.Prompt += int64(w.prompt)
	f.totals.Expected += int64(min(w.expected, w.prompt))
	f.totals.Reported += int64(got)
	requests := min(w.requests, maxWindow)
	f.decayEvidence(requests)
	mean, evidence := w.prompt/w.requests, 0.0
	if f.ends.compareWindow(&w.ends, got, mean, p) {
		f.forgetSize()
		return
	}
	for _, tokens := range w.byDistance {
		evidence += tokens
	}
	// One request may be on the other side of an end of the window. What was just being computed has the rate of the rest.
	left := (min(got, w.cached) + w.cached/w.requests) * evidence / max(w.cached, 1)
	scale := requests / w.requests
	if hits == 0 {
		scale *= noneWeight
	}
	for i := range w.byDistance {
		tokens := w.byDistance[i]
		hit := min(tokens, left)
		left -= hit
		f.hits[i] += scale * hit / mean
		f.misses[i] += scale * (tokens - hit) / mean
	}
	if p.alone && got > w.cached+surplusPart*w.prompt {
		f.forgetMisses()
	}
	f.size = f.bestSize(p.claimed)
}

// totalTokens returns the sums of tokens for metrics.
func (f *cacheFit) totalTokens() endpoint.PrefixTokens {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.totals
}

// fittedSize returns the size that fits best.
func (f *cacheFit) fittedSize() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}
