package app

import (
	"context"
	"crypto/tls"
	"fmt"

	"go.uber.org/zap"

	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/replicas"
)

// replicaNode is this replica among the others; nothing if they tell each other nothing.
type replicaNode struct{ *replicas.Node }

func newReplicaNode(cfg *config.Config, log *zap.Logger, c *certificates) replicaNode {
	if !cfg.Replicas.IsEnabled() {
		return replicaNode{}
	}
	return replicaNode{replicas.New(replicas.Params{
		Log: log.Named("replicas"), Flag: config.FlagReplicaBindAddress, BindAddress: cfg.Replicas.BindAddress, Addresses: cfg.Replicas.Addresses, TLS: c.ofReplicas(),
	})}
}

// ofReplicas returns the settings of connections between replicas, nil for plaintext: they are as secure as those of gateways.
func (c *certificates) ofReplicas() *tls.Config {
	if c.gateways == nil {
		return nil
	}
	return c.gateways.Siblings(c.options)
}

func (n replicaNode) openListener() error {
	if n.Node == nil {
		return nil
	}
	if err := n.OpenListener(); err != nil {
		return fmt.Errorf("--%s: %w", config.FlagReplicaBindAddress, err)
	}
	return nil
}

// listenAddress returns the address of the listener. It is empty without a Node.
func (n replicaNode) listenAddress() string {
	if n.Node == nil {
		return ""
	}
	return n.ListenAddress()
}

func (n replicaNode) runNode(ctx context.Context) error {
	if n.Node == nil {
		return nil
	}
	return n.Run(ctx)
}

func (n replicaNode) closeNode() {
	if n.Node != nil {
		n.Close()
	}
}
