package metrics

import "github.com/prometheus/client_golang/prometheus"

// Config exports the active configuration of the plugins.
type Config struct {
	info *prometheus.GaugeVec
	last prometheus.Gauge
}

// NewConfig creates and registers the gauges.
func NewConfig(r prometheus.Registerer) *Config {
	own := ownMetrics(r)
	return &Config{
		info: own.newGaugeVec("config_info", "The active configuration of the plugins, by the hash of its text.", "hash"),
		last: own.newGauge("config_last_reload_successful",
			"1 if the last text of the configuration and its files are active, 0 if they were rejected."),
	}
}

// ConfigLoaded records the active configuration.
func (c *Config) ConfigLoaded(hash string) {
	c.info.Reset()
	c.info.WithLabelValues(hash).Set(1)
	c.last.Set(1)
}

// ConfigFailed records that the last valid configuration stays active.
func (c *Config) ConfigFailed() { c.last.Set(0) }
