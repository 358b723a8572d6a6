package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/httpserver"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/edge-cache/internal/config"
)

const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	// drain is the time for open requests at the end. Watches never end by themselves.
	drain = time.Second
)

// Run runs the cache until ctx ends, or until a part of it fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	if err := p.Mirror.Restore(); err != nil {
		return errors.Join(err, p.State.Close())
	}
	err = p.runParts(ctx)
	return errors.Join(err, p.State.Close())
}

// runParts runs all parts until ctx ends.
func (p *parts) runParts(ctx context.Context) error {
	if err := p.HTTP.Listen(); err != nil {
		return fmt.Errorf("start http server: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.Config.Client.Address)
	if err != nil {
		return fmt.Errorf("listen for the controller: %w", err)
	}
	if err := p.Credentials.WriteFiles(p.Config.Client.CredentialsDir, string(p.Namespace)); err != nil {
		return err
	}
	if err := p.writeAddresses(listener); err != nil {
		return err
	}
	p.Log.Info("Started", zap.String(logging.KeyVersion, version.String()), zap.Stringer("address", listener.Addr()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var group sync.WaitGroup
	var serving, probing error
	group.Go(func() { defer cancel(); serving = p.serveAPI(ctx, listener) })
	group.Go(func() { defer cancel(); probing = p.HTTP.Run(ctx) })
	group.Go(func() { p.Connection.Run(ctx) })
	group.Go(func() { p.Mirror.Run(ctx) })
	group.Wait()
	if err := errors.Join(serving, probing); err != nil {
		return err
	}
	p.Log.Info("Stopped")
	return nil
}

// writeAddresses writes where the cache listens to --address-file, by the names of the listeners.
func (p *parts) writeAddresses(client net.Listener) error {
	if p.Config.AddressFile == "" {
		return nil
	}
	return addressfile.Write(p.Config.AddressFile, map[string]string{
		"client": client.Addr().String(), "health": p.HTTP.HealthAddress(), "metrics": p.HTTP.MetricsAddress(),
	})
}

// serveAPI serves the controller until ctx ends.
func (p *parts) serveAPI(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: p.API, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: 64 << 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{p.Credentials.Certificate}, MinVersion: tls.VersionTLS12},
		ErrorLog:  zap.NewStdLog(p.Log.Named("http").WithOptions(zap.IncreaseLevel(zap.ErrorLevel))),
		// One connection of a Go client carries all its watches.
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: p.Config.Client.MaxWatches + apiStreams},
	}
	// A client that speaks HTTP/1.1 needs a connection for each watch.
	listener = netutil.LimitListener(listener, p.Config.Client.MaxWatches+apiStreams)
	if err := httpserver.Serve(ctx, server, listener, drain); err != nil {
		return fmt.Errorf("serve the controller: %w", err)
	}
	return nil
}

// apiStreams is the room for requests that are no watches.
const apiStreams = 64
