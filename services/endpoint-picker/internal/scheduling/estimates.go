package scheduling

// An estimateReader is a plugin that may read estimates of a candidate: Candidate.Matched, Load.Tokens, Load.Wait, Load.Delay.
type estimateReader interface {
	ReadsEstimates() bool
}

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
