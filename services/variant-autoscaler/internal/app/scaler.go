package app

import (
	"context"
	"net"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/wait"

	"fairlead.dev/pkg/servingcert"
	"fairlead.dev/services/variant-autoscaler/internal/config"
	"fairlead.dev/services/variant-autoscaler/internal/externalscaler"
	"fairlead.dev/services/variant-autoscaler/internal/metrics"
)

const (
	// certificateInterval is the time between two reads of the certificate.
	certificateInterval = time.Minute
	// listenRetry is the time until the next attempt to open the port.
	listenRetry = 5 * time.Second
)

// kedaServer is the external scaler for KEDA. Without an address, it does nothing.
type kedaServer struct {
	log         *zap.Logger
	server      *externalscaler.Server // nil: off
	certificate *servingcert.Store     // nil: plaintext
}

func newScaler(cfg *config.Config, log *zap.Logger, t *externalscaler.Table, m *metrics.Metrics) (*kedaServer, error) {
	o := cfg.Scaler
	if o.Address == "" {
		return &kedaServer{}, nil
	}
	k := &kedaServer{log: log.Named("scaler")}
	p := externalscaler.Params{Log: k.log, Decisions: t, Metrics: m,
		Listen: func() (net.Listener, error) { return net.Listen("tcp", o.Address) }}
	if o.Certificates != "" {
		var err error
		k.certificate, err = servingcert.Load(servingcert.Params{
			Log: k.log, Dir: o.Certificates, ClientCAFile: o.ClientCAFile, ClientNames: o.ClientNames, Interval: certificateInterval,
		})
		if err != nil {
			return nil, err
		}
		p.TLS = k.certificate.TLS(servingcert.Options{})
	} else {
		k.log.Warn("The external scaler serves without TLS: others on the network can read and forge its answers. Set --scaler-certificates")
	}
	k.server = externalscaler.New(p)
	return k, nil
}

// Run serves while this replica leads, until ctx ends.
func (k *kedaServer) Run(ctx context.Context) {
	if k.server == nil {
		return
	}
	if k.certificate != nil {
		go k.certificate.Run(ctx)
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := k.server.Run(ctx); ctx.Err() == nil {
			k.log.Error("External scaler failed to listen, retrying", zap.Error(err))
		}
	}, listenRetry)
}
