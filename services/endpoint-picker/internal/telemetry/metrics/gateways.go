package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"fairlead.dev/services/endpoint-picker/internal/listener/grpcserver"
)

const labelLimit = "limit"

// RegisterGateways exports what gateways use of the process, from the figures of the server for gateways.
func RegisterGateways(r prometheus.Registerer, stats func() grpcserver.Stats) {
	own := figures[grpcserver.Stats]{
		gaugeOf("request_bytes_buffered", "Bytes of gateways and of clients of the proxy listener and of the decision API in memory: "+
			"messages, request bodies, replies that were not read, open picks. The limit is --max-buffered-bytes.",
			func(s *grpcserver.Stats) float64 { return float64(s.Bytes) }),
		gaugeOf("gateways", "Gateways with connections, by IP address.", func(s *grpcserver.Stats) float64 { return float64(s.Clients) }),
		gaugeOf("gateway_connections", "Open connections of gateways.",
			func(s *grpcserver.Stats) float64 { return float64(s.Connections) }),
		gaugeOf("gateway_streams", "Open streams of gateways, open requests at the proxy listener, and open picks of the decision API. "+
			"The limit is --max-streams.", func(s *grpcserver.Stats) float64 { return float64(s.Streams) }),
	}
	limited := countersBy("gateway_limited_total", "Connections and streams that were refused or ended because of a limit, by limit.",
		labelLimit, map[string]func(s *grpcserver.Stats) float64{
			"connections": func(s *grpcserver.Stats) float64 { return float64(s.RefusedConnections) },
			"streams":     func(s *grpcserver.Stats) float64 { return float64(s.RefusedStreams) },
			"time":        func(s *grpcserver.Stats) float64 { return float64(s.ExpiredStreams) },
			"bytes":       func(s *grpcserver.Stats) float64 { return float64(s.EvictedStreams) },
			"unread":      func(s *grpcserver.Stats) float64 { return float64(s.BlockedConnections) },
			"unreturned":  func(s *grpcserver.Stats) float64 { return float64(s.ClosedClients) },
		})
	r.MustRegister(&statsCollector[grpcserver.Stats]{figures: append(own, limited...), stats: stats})
}
