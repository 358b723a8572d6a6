package app

import (
	"crypto/tls"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
)

// newReplicaNode returns this replica among the others, or nil if they tell each other nothing.
func newReplicaNode(cfg *config.Config, log *zap.Logger, c *certificates) *replicas.Node {
	if !cfg.Replicas.IsEnabled() {
		return nil
	}
	return replicas.New(replicas.Params{
		Log: log.Named("replicas"), Flag: config.FlagReplicaBindAddress, BindAddress: cfg.Replicas.BindAddress,
		Addresses: cfg.Replicas.Addresses, TLS: c.forReplicas(),
	})
}

// newStateFile returns the file that keeps the contents of caches, or nil if there is none.
func newStateFile(cfg *config.Config, log *zap.Logger) *replicas.StateFile {
	if cfg.Prefixes.StateFile == "" {
		return nil
	}
	return replicas.NewStateFile(log.Named("state"), cfg.Prefixes.StateFile, int(cfg.Prefixes.MaxBytes))
}

// forReplicas returns the settings of connections between replicas, nil for plaintext: they are as secure as those of gateways.
func (c *certificates) forReplicas() *tls.Config {
	if c.gateways == nil {
		return nil
	}
	return c.gateways.Siblings(c.options)
}
