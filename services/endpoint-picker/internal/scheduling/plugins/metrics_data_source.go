package plugins

import "fairlead.dev/services/endpoint-picker/internal/modelserver"

func newMetricsDataSource(e Environment) Plugin { return &metricsDataSource{e.Source} }

// metricsDataSource sets the addresses of metrics pages.
type metricsDataSource struct{ modelserver.Source }

// Validate checks the parameters.
func (p *metricsDataSource) Validate(c *Check) { p.Source.Validate(c.Checker) }

// ApplyTo switches scraping on.
func (p *metricsDataSource) ApplyTo(b *Builder) {
	b.Parts.Scraping.Off, b.Parts.Scraping.Source = false, p.Source
}
