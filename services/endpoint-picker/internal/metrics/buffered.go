package metrics

import "github.com/prometheus/client_golang/prometheus"

// RegisterBuffered exports the used part of --max-buffered-bytes.
func RegisterBuffered(r prometheus.Registerer, buffered func() int) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "request_bytes_buffered", Help: "Bytes of request bodies buffered until their endpoint is picked.",
	}, func() float64 { return float64(buffered()) }))
}
