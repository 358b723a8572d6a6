package plugins

const typeInflightLoadProducer = "inflight-load-producer"

// inflightLoadProducer is accepted for the load in flight, which the picker always counts. Its parameters have no effect.
type inflightLoadProducer struct {
	AddEstimatedOutputTokens    bool    `yaml:"addEstimatedOutputTokens"`
	OutputRatio                 float64 `yaml:"outputRatio,omitempty"`
	MaxEstimatedOutputTokens    int     `yaml:"maxEstimatedOutputTokens,omitempty"`
	PrefixMatchInfoProducerName string  `yaml:"prefixMatchInfoProducerName,omitempty"`
	SyncCrossReplicaState       bool    `yaml:"syncCrossReplicaState"`
}

// Validate warns of all parameters that ask for something else than the picker does.
func (p *inflightLoadProducer) Validate(c *Check) {
	const promptOnly = "only prompt tokens count as tokens in flight"
	c.NotNegative("outputRatio", p.OutputRatio)
	c.NotNegative("maxEstimatedOutputTokens", float64(p.MaxEstimatedOutputTokens))
	c.noEffect("outputRatio", promptOnly)
	c.noEffect("maxEstimatedOutputTokens", promptOnly)
	c.requireProducer("prefixMatchInfoProducerName", p.PrefixMatchInfoProducerName, typeApproxPrefixCacheProducer)
	if p.AddEstimatedOutputTokens {
		c.noEffect("addEstimatedOutputTokens", promptOnly)
	}
	if p.SyncCrossReplicaState {
		c.noEffect("syncCrossReplicaState", NoReplicaPlugin)
	}
}
