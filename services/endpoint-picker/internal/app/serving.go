package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/kube"
	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/listener/metricsauth"
	"fairlead.dev/services/endpoint-picker/internal/telemetry/metrics"
)

const (
	commonName = "endpoint-picker"
	// Reviews use a separate client, so that guessed tokens cannot use up the rate limit of the informers.
	reviewQPS   = 5
	reviewBurst = 10
)

// certificates are the certificates of the servers, nil for plaintext.
type certificates struct {
	gateways *servingcert.Store
	metrics  *servingcert.Store
	options  servingcert.Options
}

func newCertificates(cfg *config.Config, log *zap.Logger, c clock.RealClock, r *prometheus.Registry) (*certificates, error) {
	options, err := cfg.TLS.Options()
	if err != nil {
		return nil, err
	}
	certs := &certificates{options: options}
	params := servingcert.Params{Log: log.Named("certificates")}
	if cfg.TLS.Reload {
		params.Interval = cfg.TLS.ReloadEvery
	}
	ofGateways, ofMetrics := params, params
	ofGateways.Dir, ofGateways.ClientCAFile, ofGateways.ClientNames = cfg.GRPC.CertPath, cfg.GRPC.ClientCAFile, cfg.GRPC.ClientNames
	switch {
	case !cfg.GRPC.Secure:
	case cfg.GRPC.CertPath == "":
		certs.gateways, err = servingcert.SelfSigned(ofGateways, commonName, options, c.Now())
	default:
		certs.gateways, err = servingcert.Load(ofGateways)
	}
	if err != nil {
		return nil, fmt.Errorf("load certificates of --cert-path and --client-ca-file: %w", err)
	}
	if cfg.Metrics.CertDir != "" {
		ofMetrics.Dir, ofMetrics.ClientCAFile = cfg.Metrics.CertDir, cfg.Metrics.ClientCAFile
		if certs.metrics, err = servingcert.Load(ofMetrics); err != nil {
			return nil, fmt.Errorf("load certificate of --metrics-cert-dir: %w", err)
		}
	}
	certs.registerMetrics(r)
	return certs, nil
}

// registerMetrics exports the expiry of the certificates.
func (c *certificates) registerMetrics(r *prometheus.Registry) {
	for server, store := range map[string]*servingcert.Store{"ext_proc": c.gateways, "metrics": c.metrics} {
		if store != nil {
			metrics.RegisterCertificate(r, server, store.Expiry)
		}
	}
}

// forGateways returns the settings of the ext_proc server, nil for plaintext.
func (c *certificates) forGateways() *tls.Config { return c.tlsSettings(c.gateways) }

// forProxy returns the settings of the proxy's listener, nil for plain HTTP.
func (c *certificates) forProxy(p config.Proxy) *tls.Config {
	if !p.TLS {
		return nil
	}
	return c.tlsSettings(c.gateways)
}

// forMetrics returns the settings of the metrics server, nil for plaintext.
func (c *certificates) forMetrics() *tls.Config { return c.tlsSettings(c.metrics) }

func (c *certificates) tlsSettings(s *servingcert.Store) *tls.Config {
	if s == nil {
		return nil
	}
	return s.TLS(c.options)
}

// Run reloads the certificates when their files change, until ctx ends.
func (c *certificates) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	for _, store := range []*servingcert.Store{c.gateways, c.metrics} {
		if store != nil {
			running.Go(func() { store.Run(ctx) })
		}
	}
}

// protection guards the metrics; nil allows everybody.
type protection func(next http.Handler) http.Handler

func newProtection(cfg *config.Config, log *zap.Logger, cluster *clients, c clock.RealClock) (protection, error) {
	if !cfg.Metrics.Auth {
		return nil, nil
	}
	restConfig := rest.CopyConfig(cluster.config)
	restConfig.QPS, restConfig.Burst = reviewQPS, reviewBurst
	client, err := kube.NewClientset(restConfig)
	if err != nil {
		return nil, fmt.Errorf("reviews of tokens: %w", err)
	}
	return metricsauth.New(metricsauth.Params{
		Log: log.Named("metricsauth"), Tokens: client.AuthenticationV1().TokenReviews(),
		Access: client.AuthorizationV1().SubjectAccessReviews(), Clock: c,
	}).Protect, nil
}
