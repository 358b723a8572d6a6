package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/httpproxy"
)

const labelServer = "server"

var (
	descProxyConnections = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "proxy_connections"), "Open connections of clients of the proxy listener.", nil, nil)
	descProxyRefused     = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "proxy_connections_refused_total"),
		"Connections that were closed because their client held more than its share of --max-buffered-bytes.", nil, nil)
	descProxyServers = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "proxy_server_connections"),
		"Open connections of the proxy listener to model servers, by address. The limit is --proxy-max-connections-per-server.", []string{labelServer}, nil)
	descProxyAttempts = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "proxy_attempts_total"),
		"Attempts to send a request to a model server, by result.", []string{"result"}, nil)
	descProxyRetries = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "proxy_retries_total"),
		"Attempts with another model server, after one had failed.", nil, nil)
)

// proxyCollector exports the figures of the proxy's listener. The series of a model server disappear with its last connection.
type proxyCollector struct{ stats func() httpproxy.Stats }

// RegisterProxy exports the figures of the proxy's listener.
func RegisterProxy(r prometheus.Registerer, stats func() httpproxy.Stats) {
	r.MustRegister(proxyCollector{stats})
}

// Describe implements prometheus.Collector.
func (proxyCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descProxyConnections, descProxyRefused, descProxyServers, descProxyAttempts, descProxyRetries} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c proxyCollector) Collect(to chan<- prometheus.Metric) {
	s := c.stats()
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	counter := func(d *prometheus.Desc, value int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge(descProxyConnections, s.Connections)
	counter(descProxyRefused, s.RefusedConnections)
	counter(descProxyRetries, s.Retries)
	for _, server := range s.Servers {
		gauge(descProxyServers, server.Connections, server.Address)
	}
	for _, r := range httpproxy.Results() {
		counter(descProxyAttempts, s.Attempts[r], string(r))
	}
}
