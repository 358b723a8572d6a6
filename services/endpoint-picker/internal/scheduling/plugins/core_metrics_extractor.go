package plugins

import (
	"cmp"

	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

const typeCoreMetricsExtractor = "core-metrics-extractor"

// newCoreMetricsExtractor returns one with the default engine of the process.
func newCoreMetricsExtractor(e Environment) Plugin {
	p := &coreMetricsExtractor{modelserver.DefaultSettings().Extractor}
	p.DefaultEngine = cmp.Or(e.DefaultEngine, p.DefaultEngine)
	return p
}

// coreMetricsExtractor sets the metrics to read from pages.
type coreMetricsExtractor struct{ modelserver.Extractor }

// Validate checks the parameters.
func (p *coreMetricsExtractor) Validate(c *Check) { p.Extractor.Validate(c.Checker) }

// ApplyTo sets the metrics.
func (p *coreMetricsExtractor) ApplyTo(b *Builder) { b.Parts.Scraping.Extractor = p.Extractor }
