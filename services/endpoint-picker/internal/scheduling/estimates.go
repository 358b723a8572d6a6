package scheduling

// An estimateReader is a plugin that may read estimates of a candidate: Candidate.Matched, Load.Tokens, Load.Wait.
type estimateReader interface {
	ReadsEstimates() bool
}

// ReadsEstimates reports that the scorer reads Load.Wait.
func (PredictedWaitScorer) ReadsEstimates() bool { return true }

// ReadsEstimates reports that the scorer reads Candidate.Matched.
func (PrefixScorer) ReadsEstimates() bool { return true }

// ReadsEstimates reports that the filter reads Candidate.Matched.
func (PrefixAffinityFilter) ReadsEstimates() bool { return true }

// ReadsEstimates reports that the scorer reads Load.Tokens.
func (TokenLoadScorer) ReadsEstimates() bool { return true }

// ReadsEstimates reports whether the detector reads Load.Tokens.
func (d ConcurrencyDetector) ReadsEstimates() bool { return d.Tokens > 0 }

// SetEstimates computes WithoutEstimates, from the plugins of the profile and the detector that is used with it.
func (p *Profile) SetEstimates(d Detector) {
	reads := readsEstimates(d)
	for _, f := range p.Filters {
		reads = reads || readsEstimates(f)
	}
	for _, s := range p.Scorers {
		reads = reads || readsEstimates(s.Scorer)
	}
	p.WithoutEstimates = !reads
}

func readsEstimates(plugin any) bool {
	r, ok := plugin.(estimateReader)
	return ok && r.ReadsEstimates()
}
