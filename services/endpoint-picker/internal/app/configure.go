package app

import (
	"cmp"
	"context"
	"fmt"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pickerconfig"
	"fairlead.dev/services/endpoint-picker/internal/reload"
)

// adoptDiscovery uses the endpoints file that the configuration of the plugins names, if no flag names a source of
// endpoints. The source is fixed before any part is made, until the process ends.
func adoptDiscovery(ctx context.Context, cfg *config.Config) error {
	var source reload.Source
	switch {
	case cfg.Pool.Given(), !cfg.Plugins.AtStart():
		return nil
	case cfg.Plugins.File != "":
		source = reload.File(cfg.Plugins.File)
	default:
		source = reload.Text(cfg.Plugins.Text)
	}
	text, err := source.Read(ctx)
	if err != nil {
		return fmt.Errorf("read %s: %w", source, err)
	}
	c, err := pickerconfig.Load(text, pickerconfig.Options{StaleAfter: cfg.Scraping.StaleAfter})
	if err != nil {
		return fmt.Errorf("%w: %s: %w", reload.ErrUnusable, source, err)
	}
	if c.Discovery == nil {
		return fmt.Errorf("%w: %s: it has no file-discovery, and the flags name no pool: give one of both", reload.ErrUnusable, source)
	}
	return cfg.UseFile(c.Discovery.Path, !c.Discovery.Watch)
}

// configure applies a configuration to the parts that do not read it themselves.
func (p *parts) configure(c *pickerconfig.Config) error {
	p.ExtProc.WantHeaders(c.Headers)
	return p.Pools.Configure(scraping(&c.Scraping))
}

// reconfigure applies a later configuration. Settings that cannot be applied stay unchanged.
func (p *parts) reconfigure(c *pickerconfig.Config) {
	if err := p.configure(c); err != nil {
		p.Log.Warn("Kept the last scraping settings", zap.Error(err))
	}
}

// scraping converts the configuration to settings of the scraper. A configured CA certificate enables verification.
func scraping(s *pickerconfig.Scraping) modelserver.Settings {
	defaults := modelserver.DefaultSettings()
	settings := modelserver.Settings{
		Off:                !s.Enabled,
		Scheme:             cmp.Or(s.Source.Scheme, defaults.Scheme),
		Path:               s.Source.Path,
		Port:               s.Source.Port,
		InsecureSkipVerify: s.Source.InsecureSkipVerify && s.Source.CACertPath == "",
		CACertPath:         s.Source.CACertPath,
		ClientCertPath:     s.Source.ClientCertPath,
		ClientKeyPath:      s.Source.ClientKeyPath,
		Interval:           modelserver.Interval{Fastest: s.Source.Interval},
		EngineLabel:        cmp.Or(s.EngineLabel, defaults.EngineLabel),
		DefaultEngine:      cmp.Or(s.DefaultEngine, defaults.DefaultEngine),
	}
	if settings.Path == "/metrics" {
		settings.Path = "" // upstream's default; an engine may have another
	}
	for i := range s.Engines {
		settings.Engines = append(settings.Engines, engine(&s.Engines[i]))
	}
	return settings
}

func engine(e *pickerconfig.Engine) modelserver.Engine {
	made := modelserver.Engine{
		Name:           e.Name,
		Waiting:        spec(e.QueuedRequestsSpec),
		Running:        spec(e.RunningRequestsSpec),
		KVUsage:        spec(e.KVUsageSpec),
		LoRA:           e.LoRASpec,
		CacheInfo:      e.CacheInfoSpec,
		BlockSizeLabel: e.CacheBlockSizeLabelName,
		BlocksLabel:    e.CacheNumBlocksLabelName,
		BlockSize:      e.CacheBlockSizeSpec,
		Blocks:         e.CacheNumBlocksSpec,
	}
	for _, m := range e.CustomMetrics {
		made.Custom = append(made.Custom, modelserver.CustomMetric{Attribute: m.AttributeKey, Metric: m.MetricSpec})
	}
	return made
}

func spec(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}
