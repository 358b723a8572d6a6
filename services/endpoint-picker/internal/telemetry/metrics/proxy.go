package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/httpproxy"
)

// proxyCollector exports the figures of the proxy's listener. The series of a model server disappear with its last connection.
type proxyCollector struct {
	statsCollector[httpproxy.Stats]

	servers *prometheus.Desc
}

// RegisterProxy exports the figures of the proxy's listener.
func RegisterProxy(r prometheus.Registerer, stats func() httpproxy.Stats) {
	attempts := map[string]func(s *httpproxy.Stats) float64{}
	for _, result := range httpproxy.Results() {
		attempts[string(result)] = func(s *httpproxy.Stats) float64 { return float64(s.Attempts[result]) }
	}
	own := figures[httpproxy.Stats]{
		gaugeOf("proxy_connections", "Open connections of clients of the proxy listener.",
			func(s *httpproxy.Stats) float64 { return float64(s.Connections) }),
		counterOf("proxy_connections_refused_total",
			"Connections that were closed because their client held more than its share of --max-buffered-bytes.",
			func(s *httpproxy.Stats) float64 { return float64(s.RefusedConnections) }),
		counterOf("proxy_retries_total", "Attempts with another model server, after one had failed.",
			func(s *httpproxy.Stats) float64 { return float64(s.Retries) }),
	}
	own = append(own, countersBy("proxy_attempts_total", "Attempts to send a request to a model server, by result.", "result", attempts)...)
	r.MustRegister(&proxyCollector{
		statsCollector: statsCollector[httpproxy.Stats]{figures: own, stats: stats},
		servers: newDesc("proxy_server_connections", "Open connections of the proxy listener to model servers, by address. "+
			"The limit is --proxy-max-connections-per-server.", "server"),
	})
}

// Describe implements prometheus.Collector.
func (c *proxyCollector) Describe(out chan<- *prometheus.Desc) {
	c.describeFigures(out)
	out <- c.servers
}

// Collect implements prometheus.Collector.
func (c *proxyCollector) Collect(out chan<- prometheus.Metric) {
	s := c.stats()
	c.collectFigures(out, &s)
	for _, server := range s.Servers {
		out <- prometheus.MustNewConstMetric(c.servers, prometheus.GaugeValue, float64(server.Connections), server.Address)
	}
}
