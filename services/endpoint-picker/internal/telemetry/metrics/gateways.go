package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
)

const labelLimit = "limit"

var (
	descBuffered = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "request_bytes_buffered"),
		"Bytes of gateways and of clients of the proxy listener and of the decision API in memory: messages, request bodies, replies that were not read, open picks. The limit is --max-buffered-bytes.", nil, nil)
	descGateways    = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "gateways"), "Gateways with connections, by IP address.", nil, nil)
	descConnections = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "gateway_connections"), "Open connections of gateways.", nil, nil)
	descStreams     = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "gateway_streams"), "Open streams of gateways, open requests at the proxy listener, and open picks of the decision API. The limit is --max-streams.", nil, nil)
	descLimited     = prometheus.NewDesc(prometheus.BuildFQName(namespace, "", "gateway_limited_total"),
		"Connections and streams that were refused or ended because of a limit, by limit.", []string{labelLimit}, nil)
)

// gateways exports what gateways use of the process.
type gateways struct{ stats func() grpcserver.Stats }

// RegisterGateways exports the figures of the server for gateways.
func RegisterGateways(r prometheus.Registerer, stats func() grpcserver.Stats) {
	r.MustRegister(gateways{stats})
}

// Describe implements prometheus.Collector.
func (gateways) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descBuffered, descGateways, descConnections, descStreams, descLimited} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (g gateways) Collect(to chan<- prometheus.Metric) {
	s := g.stats()
	gauge := func(d *prometheus.Desc, value int) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value))
	}
	gauge(descBuffered, s.Bytes)
	gauge(descGateways, s.Clients)
	gauge(descConnections, s.Connections)
	gauge(descStreams, s.Streams)
	for _, c := range []struct {
		limit string
		value int64
	}{
		{"connections", s.RefusedConnections},
		{"streams", s.RefusedStreams},
		{"time", s.ExpiredStreams},
		{"bytes", s.EvictedStreams},
		{"unread", s.BlockedConnections},
		{"unreturned", s.ClosedClients},
	} {
		to <- prometheus.MustNewConstMetric(descLimited, prometheus.CounterValue, float64(c.value), c.limit)
	}
}
