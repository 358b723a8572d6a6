package estimate

import "sync/atomic"

// keptEnds learns whether a server keeps only the ends of prompts. vLLM does so for models with layers of a sliding window or with
// recurrent ones, because the state of such layers at other places is seldom of use. A prompt that ends, or leaves an earlier one, keeps
// that place for later prompts. So the first prompt that shares only the inside of earlier ones finds nothing there, and the next one does.
//
// Evidence is what servers report of prompts whose match goes on beyond the last such place. As caches evict what was not used for long, a
// miss counts only if an end that was not used for about as long was found, or if another server of the pool keeps only ends: most pools
// have one model. The lock of the cacheFit guards all but only.
type keptEnds struct {
	only          atomic.Bool
	found, missed float64 // prompts, by the share that was found beyond the last end; the last ones count
	reach         float64 // the largest distance of an end that was found lately, in blocks
}

// comparePrompt compares what was expected of a prompt with its cached tokens. It reports whether the result has changed.
func (k *keptEnds) comparePrompt(e *Expectation, cached float64, p fitContext) (changed bool) {
	if e.inProgress() {
		return false
	}
	farthest, atEnd := 0.0, cached >= (1-surplusPart)*float64(e.ends)
	for _, span := range e.reuse.Spans() {
		farthest = float64(span.Distance)
		if span.End == e.reuse.Resumable && atEnd {
			k.reach = max(k.reach*reachKeep, farthest)
		}
	}
	if !atEnd {
		k.missed = max(k.missed-1, 0) // something else is the reason
		return false
	}
	inside := float64(e.sent - e.ends)
	if inside < surplusPart*float64(e.tokens) {
		return false
	}
	share := min(max(cached-float64(e.ends), 0)/inside, 1)
	if share < 0.5 && farthest > reachFactor*k.reach && !p.sparse {
		return false
	}
	return k.addEvidence(share, 1, p)
}

// compareOmitted is compareUsage for an answer without the field of cached tokens. vLLM omits a zero. Other servers may omit the field for
// other reasons, so such an answer is no evidence of the size of the cache.
func (f *cacheFit) compareOmitted(e *Expectation, prompt int, p fitContext) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.reports {
		return
	}
	f.addTotals(e, prompt, 0)
	if e.size.ChainComplete && f.ends.comparePrompt(e, 0, p) {
		f.forgetSize()
	}
}

// addTotals adds the tokens of a prompt to the sums for metrics.
func (f *cacheFit) addTotals(e *Expectation, prompt, cached int) {
	f.totals.Prompt += int64(prompt)
	f.totals.Expected += int64(min(e.expected, prompt))
	f.totals.Reported += int64(min(cached, prompt))
}

// addEvidence adds a number of prompts of which a share was found beyond the last end.
func (k *keptEnds) addEvidence(share, prompts float64, p fitContext) (changed bool) {
	enough := endsMissed
	if p.sparse {
		enough = endsMissedHere
	}
	keep := max(1-prompts/endsMemory, 0)
	k.found = k.found*keep + share*prompts
	k.missed = k.missed*keep + (1-share)*prompts
	only := k.only.Load()
	if !only && k.missed >= enough && k.missed >= endsFactor*k.found || only && k.found > k.missed {
		k.only.Store(!only)
		return true
	}
	return false
}

// forget forgets everything: the server has started again.
func (k *keptEnds) forget() {
	k.only.Store(false)
	k.found, k.missed, k.reach = 0, 0, 0
}

// forgetEnds forgets whether the server keeps only ends.
func (f *cacheFit) forgetEnds() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ends.forget()
}

// endTokens are sums of tokens of prompts between two pages.
type endTokens struct {
	sent         float64 // before
	ends, inside float64 // of them, up to the last end and beyond it, without prompts in progress
}

func (w *endTokens) addPrompt(e *Expectation) {
	w.sent += float64(e.sent)
	if !e.inProgress() {
		w.ends += float64(e.ends)
		w.inside += float64(e.sent - e.ends)
	}
}

// compareWindow is comparePrompt for all prompts between two pages together, with the mean of their tokens. Misses count only if ends were
// found. Prompts in progress have the rate of the rest.
func (k *keptEnds) compareWindow(w *endTokens, cached, mean float64, p fitContext) (changed bool) {
	cached *= (w.ends + w.inside) / max(w.sent, 1)
	if min(w.ends, w.inside) < surplusPart*w.sent || cached < (1-surplusPart)*w.ends {
		return false
	}
	share := min(max(cached-w.ends, 0)/max(w.inside, 1), 1)
	return k.addEvidence(share, min(w.inside/mean, endsMemory/2), p)
}

// inProgress reports whether a part of what was sent before was not computed yet.
func (e *Expectation) inProgress() bool { return int(e.settled) < e.reuse.Blocks() }
