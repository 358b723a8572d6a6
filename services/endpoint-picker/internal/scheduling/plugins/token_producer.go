package plugins

import "fairlead.dev/pkg/strictyaml"

// tokenProducer is accepted for its estimate, which the picker makes itself. It refuses tokenizers.
type tokenProducer struct {
	ModelName          string         `yaml:"modelName,omitempty"`
	VLLM               strictyaml.Raw `yaml:"vllm,omitempty"`
	UDSTokenizerConfig strictyaml.Raw `yaml:"udsTokenizerConfig,omitempty"`
	Estimate           strictyaml.Raw `yaml:"estimate,omitempty"`
}

// Validate refuses tokenizers.
func (p *tokenProducer) Validate(c *Check) {
	for _, field := range []string{"modelName", "vllm", "udsTokenizerConfig"} {
		c.Require(!c.HasField(field), field, "the picker uses no tokenizer, it estimates tokens: leave it out")
	}
	if !p.Estimate.IsEmpty() {
		c.noEffect("estimate", "the picker has its own estimate of images and sounds")
	}
}
