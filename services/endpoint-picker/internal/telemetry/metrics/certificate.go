package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterCertificate exports the expiry of a server's certificate. It also reveals unusable files, because the value then
// stays constant.
func RegisterCertificate(r prometheus.Registerer, server string, expiry func() time.Time) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "certificate_expiry_timestamp_seconds",
		Help:        "Expiry of the server's active certificate, in Unix time.",
		ConstLabels: prometheus.Labels{"server": server},
	}, func() float64 { return float64(expiry().Unix()) }))
}
