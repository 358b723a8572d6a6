package estimate

import (
	"maps"
	"sync"
	"sync/atomic"
)

// tokenizers learns the tokens of texts, for each model: the ratio of the tokens that servers count to those that a fixed length
// of a token gives (prefixindex.BytesPerToken). A token of an 8B model's vocabulary has 4.4 bytes in prose and 2.3 in code; other
// languages and escapes in JSON differ more.
//
// Names of models come from clients, so only names that a server has answered count, and the least recently used one leaves for
// a new one. A model that is not known has the mean ratio of the pool, which also converts what no request belongs to: the
// sizes of caches, answers, and requests of other replicas.
//
// Before the first answer a model has the ratio that a server counted in a sample text. Names of these models come from metrics pages, so
// none of them displaces another, and each leaves before one that was answered.
//
// Readers take no lock.
type tokenizers struct {
	mean         tokenRatio
	models       atomic.Pointer[map[string]*tokenRatio] // replaced, never changed
	mu           sync.Mutex                             // serializes writers
	observations uint64                                 // observations so far
}

// tokenRatio is one learned ratio.
type tokenRatio struct {
	sum, weight float64 // of the observed ratios; guarded by tokenizers.mu
	start       float64 // the ratio without observations; guarded by tokenizers.mu
	prior       float64 // its weight; guarded by tokenizers.mu
	sampled     bool    // start was counted in a sample text; guarded by tokenizers.mu
	used        uint64  // the last observation, 0 if there is none; guarded by tokenizers.mu
	ratio       atomicFloat
}

func newTokenRatio(start float64) *tokenRatio {
	r := &tokenRatio{start: start, prior: ratioPrior}
	r.ratio.Store(start)
	return r
}

func newTokenizers() *tokenizers {
	t := &tokenizers{mean: tokenRatio{start: 1, prior: ratioPrior}}
	t.mean.ratio.Store(1)
	t.models.Store(&map[string]*tokenRatio{})
	return t
}

// ratioOf returns the ratio of a model.
func (t *tokenizers) ratioOf(model string) float64 {
	if r := (*t.models.Load())[model]; r != nil {
		return r.ratio.Load()
	}
	return t.mean.ratio.Load()
}

// meanRatio returns the mean ratio.
func (t *tokenizers) meanRatio() float64 { return t.mean.ratio.Load() }

// observePrompt adds the counted tokens of the text of one prompt of a model, and their estimate without a ratio.
func (t *tokenizers) observePrompt(model string, estimated, counted int) {
	if estimated <= 0 || counted <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.observations++
	ratio, weight := float64(counted)/float64(estimated), ratioWeight*min(float64(estimated)/ratioTokens, 1)
	t.mean.addRatio(ratio, weight)
	r := (*t.models.Load())[model]
	if r == nil {
		r = t.addModel(model)
	}
	r.used = t.observations
	r.addRatio(ratio, weight)
}

// observePrompts adds the counts of many prompts of any models. They also stand for models without counts of their own: servers that do not
// report the usage of answers have nothing else.
func (t *tokenizers) observePrompts(estimated, counted float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mean.addRatio(counted/estimated, manyWeight)
	for _, r := range *t.models.Load() {
		if r.used == 0 {
			r.addRatio(counted/estimated, manyWeight)
		}
	}
}

// setSample sets the ratio of a model before observations, from the tokens counted in a sample text. The mean starts with the mean of all
// models with samples.
func (t *tokenizers) setSample(model string, ratio float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := (*t.models.Load())[model]
	if r == nil {
		if len(*t.models.Load()) >= maxModels {
			return
		}
		r = t.addModel(model)
	}
	r.startAt(ratio)
	var sum, sampled float64
	for _, r := range *t.models.Load() {
		if r.sampled {
			sum, sampled = sum+r.start, sampled+1
		}
	}
	t.mean.startAt(sum / sampled)
}

// restoreMean starts the mean with a ratio, unless a sample has shown another one.
func (t *tokenizers) restoreMean(ratio float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mean.sampled && ratio >= 1/maxRatio && ratio <= maxRatio {
		t.mean.startAt(ratio)
	}
}

// addModel adds a model, in place of the least recently used one if there are too many. mu is held.
func (t *tokenizers) addModel(model string) *tokenRatio {
	next := maps.Clone(*t.models.Load())
	if len(next) >= maxModels {
		oldest, used := "", t.observations+1
		for name, r := range next {
			if r.used < used {
				oldest, used = name, r.used
			}
		}
		delete(next, oldest)
	}
	r := newTokenRatio(t.mean.ratio.Load())
	next[model] = r
	t.models.Store(&next)
	return r
}

// addRatio adds a ratio with a weight. One count moves the mean by a bounded part, whatever it claims: it counts as at most twice,
// and at least half, of what is known.
func (r *tokenRatio) addRatio(ratio, weight float64) {
	last := r.ratio.Load()
	ratio = min(max(ratio, last/maxSurprise), last*maxSurprise)
	r.sum += weight * (ratio - r.sum)
	r.weight += weight * (1 - r.weight)
	r.updateRatio()
}

// startAt replaces the ratio without observations by that of a sample text.
func (r *tokenRatio) startAt(ratio float64) {
	r.start, r.prior, r.sampled = ratio, samplePrior, true
	r.updateRatio()
}

// updateRatio computes the ratio. The more has been observed, the less counts the start.
func (r *tokenRatio) updateRatio() {
	prior := r.prior * (1 - r.weight)
	next := (r.sum + prior*r.start) / (r.weight + prior)
	r.ratio.Store(min(max(next, 1/maxRatio), maxRatio))
}
