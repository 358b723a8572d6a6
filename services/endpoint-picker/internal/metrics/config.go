package metrics

import "github.com/prometheus/client_golang/prometheus"

// Config says which configuration of the plugins is in force.
type Config struct {
	info *prometheus.GaugeVec
	last prometheus.Gauge
}

// NewConfig returns the gauges, registered.
func NewConfig(r prometheus.Registerer) *Config {
	c := &Config{
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: namespace, Name: "config_info", Help: "The active configuration of the plugins, by the hash of its text.",
		}, []string{"hash"}),
		last: gauge("config_last_reload_successful", "1 if the last text of the configuration is active, 0 if it was rejected."),
	}
	r.MustRegister(c.info, c.last)
	return c
}

// ConfigLoaded says that a configuration is in force, and no other one.
func (c *Config) ConfigLoaded(hash string) {
	c.info.Reset()
	c.info.WithLabelValues(hash).Set(1)
	c.last.Set(1)
}

// ConfigFailed says that the last good configuration stays in force.
func (c *Config) ConfigFailed() { c.last.Set(0) }
