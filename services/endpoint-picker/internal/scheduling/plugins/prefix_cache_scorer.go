package plugins

import (
	"cmp"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

const typePrefixCacheScorer = "prefix-cache-scorer"

// prefixCacheScorer rates an endpoint by the part of the prompt in its cache.
type prefixCacheScorer struct {
	// MatchLengthWeight is the weight of the score that grows with the square of the cached length, up to
	// MatchLengthScaleTokens. The rest is the weight of the cached share of the prompt.
	MatchLengthWeight           float64 `yaml:"matchLengthWeight"`
	MatchLengthScaleTokens      int     `yaml:"matchLengthScaleTokens"`
	PrefixMatchInfoProducerName string  `yaml:"prefixMatchInfoProducerName,omitempty"`

	// Parameters of the producer, which the scorers of the Inference Extension had until 1.4 and those of llm-d until 0.8.
	HashBlockSize          int   `yaml:"hashBlockSize,omitempty"` // bytes
	BlockSize              int   `yaml:"blockSize,omitempty"`     // bytes
	BlockSizeTokens        int   `yaml:"blockSizeTokens,omitempty"`
	MaxPrefixBlocksToMatch int   `yaml:"maxPrefixBlocksToMatch,omitempty"`
	MaxPrefixTokensToMatch int   `yaml:"maxPrefixTokensToMatch,omitempty"`
	LRUCapacityPerServer   int   `yaml:"lruCapacityPerServer,omitempty"`
	AutoTune               *bool `yaml:"autoTune,omitempty"`

	// Parameters of the index that read events of the KV caches, in llm-d 0.2 to 0.5.
	Mode                 string         `yaml:"mode,omitempty"`
	IndexerConfig        strictyaml.Raw `yaml:"indexerConfig,omitempty"`
	KVCacheIndexerConfig strictyaml.Raw `yaml:"kvCacheIndexerConfig,omitempty"`
	KVEventsConfig       strictyaml.Raw `yaml:"kvEventsConfig,omitempty"`
	KVBlockIndexConfig   strictyaml.Raw `yaml:"kvBlockIndexConfig,omitempty"`
	TokenProcessorConfig strictyaml.Raw `yaml:"tokenProcessorConfig,omitempty"`
	TokenizersPoolConfig strictyaml.Raw `yaml:"tokenizersPoolConfig,omitempty"`
	KVCacheRedisAddr     strictyaml.Raw `yaml:"kvCacheRedisAddr,omitempty"`

	moved bool // it has some of the producer's
}

// Validate checks the parameters.
func (s *prefixCacheScorer) Validate(c *Check) {
	c.Share("matchLengthWeight", s.MatchLengthWeight)
	c.Positive("matchLengthScaleTokens", float64(s.MatchLengthScaleTokens))
	if s.MatchLengthWeight == 0 {
		c.noEffect("matchLengthScaleTokens", "matchLengthWeight is 0")
	}
	c.requireProducer("prefixMatchInfoProducerName", s.PrefixMatchInfoProducerName, typeApproxPrefixCacheProducer)
	for field, value := range map[string]int{
		"hashBlockSize": s.HashBlockSize, "blockSize": s.BlockSize, "blockSizeTokens": s.BlockSizeTokens,
		"maxPrefixBlocksToMatch": s.MaxPrefixBlocksToMatch,
		"maxPrefixTokensToMatch": s.MaxPrefixTokensToMatch, "lruCapacityPerServer": s.LRUCapacityPerServer,
	} {
		c.Count(field, value, 0)
		s.warnMoved(c, field)
	}
	s.warnMoved(c, "autoTune")
	s.validateMode(c)
}

// validateMode refuses the index that reads events, and warns of its parameters. They had no effect with another one.
func (s *prefixCacheScorer) validateMode(c *Check) {
	const estimate, tracking = "estimate", "cache_tracking"
	switch s.Mode {
	case "", estimate:
		c.noEffect("mode", "the index is always an estimate: leave it out")
	case tracking:
		c.Errorf("mode", "this picker reads no events of KV caches: %s: leave it out, with indexerConfig, kvEventsConfig and "+
			"tokenProcessorConfig", useApproximate)
	default:
		c.OneOf("mode", s.Mode, estimate, tracking)
	}
	for _, field := range []string{
		"indexerConfig", "kvCacheIndexerConfig", "kvEventsConfig", "kvBlockIndexConfig", "tokenProcessorConfig", "tokenizersPoolConfig",
		"kvCacheRedisAddr",
	} {
		c.noEffect(field, "the picker estimates what is cached, and reads no events of KV caches: leave it out")
	}
}

// warnMoved warns of a parameter that belongs to the producer.
func (s *prefixCacheScorer) warnMoved(c *Check, field string) {
	if c.HasField(field) {
		s.moved = true
		c.Warnf(field, "its new place is the plugin %s", typeApproxPrefixCacheProducer)
	}
}

// ApplyTo counts the index of prefixes as used, and sets it if the scorer has the parameters of the producer.
func (s *prefixCacheScorer) ApplyTo(b *Builder) {
	b.useProducer(s.PrefixMatchInfoProducerName)
	if !s.moved {
		return
	}
	index := s.indexSettings()
	b.Require(b.Parts.moved == nil || *b.Parts.moved == index, "", "another %s has other parameters of the index: %s",
		typePrefixCacheScorer, onlyOneIndex)
	b.Parts.moved, b.Parts.Prefix = &index, index
}

// indexSettings returns the index that the parameters of the producer describe.
func (s *prefixCacheScorer) indexSettings() PrefixIndex {
	const bytesPerToken = 4 // as in the Inference Extension
	p := defaultPrefixProducer()
	p.BlockSizeTokens = cmp.Or(s.BlockSizeTokens, s.BlockSize/bytesPerToken, s.HashBlockSize/bytesPerToken, p.BlockSizeTokens)
	p.LRUCapacityPerServer = cmp.Or(s.LRUCapacityPerServer, p.LRUCapacityPerServer)
	if s.MaxPrefixBlocksToMatch+s.MaxPrefixTokensToMatch > 0 {
		p.MaxPrefixBlocksToMatch, p.MaxPrefixTokensToMatch = s.MaxPrefixBlocksToMatch, s.MaxPrefixTokensToMatch
	}
	if s.AutoTune != nil {
		p.AutoTune = *s.AutoTune
	}
	return p.indexSettings()
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
