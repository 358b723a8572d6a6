package plugins

import "fairlead.dev/services/endpoint-picker/internal/scheduling"

var prefixCacheScorerType = Type{
	Name: "prefix-cache-scorer", Section: SectionProfile,
	New: func(Environment) Plugin { return &prefixCacheScorer{MatchLengthScaleTokens: 8192} }, // upstream's default
}

// prefixCacheScorer rates an endpoint by the part of the prompt in its cache.
type prefixCacheScorer struct {
	// MatchLengthWeight is the weight of the score that grows with the square of the cached length, up to
	// MatchLengthScaleTokens. The rest is the weight of the cached share of the prompt.
	MatchLengthWeight           float64 `yaml:"matchLengthWeight"`
	MatchLengthScaleTokens      int     `yaml:"matchLengthScaleTokens"`
	PrefixMatchInfoProducerName string  `yaml:"prefixMatchInfoProducerName,omitempty"`
}

// Validate checks the parameters.
func (s *prefixCacheScorer) Validate(c *Check) {
	c.Share("matchLengthWeight", s.MatchLengthWeight)
	c.Positive("matchLengthScaleTokens", float64(s.MatchLengthScaleTokens))
	if s.MatchLengthWeight == 0 {
		c.noEffect("matchLengthScaleTokens", "matchLengthWeight is 0")
	}
	c.producer("prefixMatchInfoProducerName", s.PrefixMatchInfoProducerName, typeApproxPrefixCacheProducer)
}

// Score sets the cached share of the prompt, or a weighted mean of it and of the length.
func (s *prefixCacheScorer) Score(r *scheduling.Request, candidates []scheduling.Candidate, scores []float64) {
	scale := float64(s.MatchLengthScaleTokens)
	for i := range candidates {
		c := &candidates[i]
		scores[i] = (1 - s.MatchLengthWeight) * cachedShare(r, c)
		if s.MatchLengthWeight > 0 {
			length := min(float64(c.Matched)/scale, 1)
			scores[i] += s.MatchLengthWeight * length * length
		}
	}
}

// cachedShare returns the share of the prompt that a candidate has in its cache.
func cachedShare(r *scheduling.Request, c *scheduling.Candidate) float64 {
	if r.Tokens <= 0 {
		return 0
	}
	return min(float64(c.Matched)/float64(r.Tokens), 1)
}

// ReadsEstimates reports that the scorer reads Candidate.Matched.
func (*prefixCacheScorer) ReadsEstimates() bool { return true }
