package plugins

import "fairlead.dev/services/endpoint-picker/internal/prefixindex"

const typeApproxPrefixCacheProducer = "approx-prefix-cache-producer"

const onlyOneIndex = "the picker has only one index of prefixes, of all tiers of a server's cache: let all plugins refer to one " +
	"producer, and set its autoTune to false and its lruCapacityPerServer to the size of all tiers"

// defaultPrefixProducer returns a producer with upstream's defaults.
func defaultPrefixProducer() approxPrefixCacheProducer {
	return approxPrefixCacheProducer{
		AutoTune: true, BlockSizeTokens: prefixindex.BlockTokens, MaxPrefixTokensToMatch: prefixindex.DefaultMatchTokens,
		LRUCapacityPerServer: 31_250,
	}
}

// DefaultPrefixIndex returns the index of a configuration without a producer.
func DefaultPrefixIndex() PrefixIndex {
	p := defaultPrefixProducer()
	return p.indexSettings()
}

// PrefixIndex configures the index of prefixes.
type PrefixIndex struct {
	MaxTokens int // length of a prompt to look up; 0 for the default limit
	// CacheBlocks is the size of a server's cache, in blocks of prefixindex.BlockTokens. With AutoTune it counts only while no
	// metrics page contains the size.
	CacheBlocks int
	AutoTune    bool
}

// approxPrefixCacheProducer configures the index of prefixes, which exists without it too.
type approxPrefixCacheProducer struct {
	AutoTune               bool `yaml:"autoTune"` // take the size of caches from metrics pages
	BlockSizeTokens        int  `yaml:"blockSizeTokens"`
	BlockSize              int  `yaml:"blockSize,omitempty"` // old name
	MaxPrefixBlocksToMatch int  `yaml:"maxPrefixBlocksToMatch"`
	MaxPrefixTokensToMatch int  `yaml:"maxPrefixTokensToMatch"` // if it is not 0, it counts instead of the blocks
	LRUCapacityPerServer   int  `yaml:"lruCapacityPerServer"`   // blocks of BlockSizeTokens
}

// Validate checks the parameters.
func (p *approxPrefixCacheProducer) Validate(c *Check) {
	switch {
	case p.BlockSize == 0:
	case c.HasField("blockSizeTokens"):
		c.noEffect("blockSize", "blockSizeTokens is set, too")
	default:
		c.Warnf("blockSize", "it is an old name: use blockSizeTokens")
		p.BlockSizeTokens = p.BlockSize
	}
	c.Count("blockSizeTokens", p.BlockSizeTokens, 1)
	if p.BlockSizeTokens != prefixindex.BlockTokens {
		c.Warnf("blockSizeTokens", "blocks always have %d tokens, like those of model servers; capacities are converted",
			prefixindex.BlockTokens)
	}
	c.Count("maxPrefixBlocksToMatch", p.MaxPrefixBlocksToMatch, 0)
	c.Count("maxPrefixTokensToMatch", p.MaxPrefixTokensToMatch, 0)
	c.Count("lruCapacityPerServer", p.LRUCapacityPerServer, 1)
	switch {
	case p.MaxPrefixTokensToMatch != 0:
		c.noEffect("maxPrefixBlocksToMatch", "maxPrefixTokensToMatch counts instead; set that to 0 to use this one")
	case p.MaxPrefixBlocksToMatch == 0:
		c.Warnf("maxPrefixTokensToMatch", "without a limit in tokens or blocks, %d tokens are the limit", prefixindex.DefaultMatchTokens)
	}
}

// ApplyTo sets the settings of the index.
func (p *approxPrefixCacheProducer) ApplyTo(b *Builder) {
	if used := b.Parts.producer; used != "" && used != b.Name {
		b.Warnf("", "it sets the index of %s, too, for which the llm-d router would make another one: refer to %.100q with "+
			"prefixMatchInfoProducerName", used, b.Name)
	}
	if b.Parts.moved != nil {
		b.Warnf("", "its parameters count, and those of the same names of a %s do not", typePrefixCacheScorer)
	}
	b.Parts.Prefix = p.indexSettings()
}

// indexSettings returns the settings of the index.
func (p *approxPrefixCacheProducer) indexSettings() PrefixIndex {
	blocks := p.LRUCapacityPerServer * p.BlockSizeTokens / prefixindex.BlockTokens
	settings := PrefixIndex{MaxTokens: p.MaxPrefixTokensToMatch, CacheBlocks: max(blocks, 1), AutoTune: p.AutoTune}
	if p.MaxPrefixTokensToMatch == 0 {
		settings.MaxTokens = p.MaxPrefixBlocksToMatch * p.BlockSizeTokens
	}
	return settings
}
