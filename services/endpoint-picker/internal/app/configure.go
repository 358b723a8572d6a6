package app

import (
	"context"
	"fmt"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

// loadConfiguration reads the configuration of the plugins, if that needs no cluster; otherwise it returns nil. If no flag
// names a source of endpoints, the configuration must: the source is fixed before any part is made, until the process ends.
func loadConfiguration(ctx context.Context, cfg *config.Config) (*reload.Loaded, error) {
	if !cfg.Plugins.AtStart() {
		return nil, nil
	}
	source := configSource(cfg, nil)
	loaded, err := reload.Read(ctx, source, configOptions(cfg))
	if err != nil || cfg.Pool.HasSource() {
		return loaded, err
	}
	discovery := loaded.Config.Discovery
	if discovery == nil {
		return nil, fmt.Errorf("%w: %s: it has no file-discovery, and the flags name no pool: give one of both", reload.ErrUnusable, source)
	}
	return loaded, cfg.UseFile(discovery.Path, !discovery.Watch)
}

// configOptions returns the external settings of configurations.
func configOptions(cfg *config.Config) pluginconfig.Options {
	return pluginconfig.Options{
		StaleAfter: cfg.Scraping.StaleAfter, Source: cfg.MetricsSource, DefaultEngine: cfg.DefaultEngine,
		EndpointsGiven: cfg.Pool.HasSource() && !cfg.Pool.Discovered,
	}
}

// prepareConfig checks that all parts can use a configuration, and returns the function that makes it effective in them.
func (p *parts) prepareConfig(c *pluginconfig.Config) (publish func(), err error) {
	plan, err := modelserver.CompilePlan(c.Scraping, p.Config.Scraping)
	if err != nil {
		return nil, err
	}
	publishServers, err := p.Pools.PrepareServers()
	if err != nil {
		return nil, err
	}
	size := estimate.CacheSize{Blocks: c.Prefix.CacheBlocks, FromPage: c.Prefix.AutoTune}
	return func() {
		publishServers()
		p.Request.Wanted.SetFurther(c.Headers)
		p.Pools.ApplyPlan(plan, size)
	}, nil
}
