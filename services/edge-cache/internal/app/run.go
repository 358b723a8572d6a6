package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/edge-cache/internal/allowlist"
	"fairlead.dev/services/edge-cache/internal/config"
	"fairlead.dev/services/edge-cache/internal/store"
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
	if err := p.restoreStores(); err != nil {
		return errors.Join(err, p.Journal.journal.Close())
	}
	err = p.runParts(ctx)
	return errors.Join(err, p.Journal.journal.Close())
}

// restoreStores fills the stores from the journal. Nodes and Ingresses come first: the projections of the others depend on them.
func (p *parts) restoreStores() error {
	begin := time.Now()
	state, err := p.Journal.restoreState(p.Caches.byID, p.Documents)
	if err != nil {
		return err
	}
	p.Connection.SetIdentity(state.identity, p.clusterChanged)
	// Before FinishRestore, which issues versions: they must be in the journal.
	if err := p.Journal.journal.Start(p.Journal.stateSource(p.Caches, p.Documents, p.Connection.Identity)); err != nil {
		p.Log.Warn("Journal cannot write: serving from memory until it can", zap.Error(err))
	}
	for order := range 3 {
		for _, o := range p.Caches.all {
			if o.restoreOrder() != order {
				continue
			}
			if err := o.store.FinishRestore(state.damaged); err != nil {
				return fmt.Errorf("restore %s: %w", o.store.ID(), err)
			}
		}
	}
	debug.FreeOSMemory() // what the replay read; the next collection could be minutes away
	p.Log.Info("Restored", zap.Int("stores", p.Caches.countSynced()), zap.Duration("took", time.Since(begin)))
	return nil
}

// restoreOrder returns the place of a store at a restoration: what projections depend on comes first, then Nodes of a NodePool, then the others.
func (o *cachedResource) restoreOrder() int {
	switch {
	case !o.store.IsVirtual():
		return 0
	case o.resource.Filter == allowlist.Nodes:
		return 1
	}
	return 2
}

func (c *caches) countSynced() int {
	n := 0
	for _, o := range c.all {
		if o.store.IsSynced() {
			n++
		}
	}
	return n
}

// clusterChanged runs before reflectors go on.
func (p *parts) clusterChanged(uid string) {
	_ = p.Journal.Append(identityRecord(uid)) // the journal reports and heals itself
	for _, o := range p.Caches.all {
		if o.store.IsSynced() {
			o.store.ExpectNewHistory()
		}
	}
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
	ns, err := newNamespace(p.Config)
	if err != nil {
		return err
	}
	if err := p.Credentials.WriteFiles(p.Config.Client.CredentialsDir, string(ns)); err != nil {
		return err
	}
	if err := p.writeAddresses(listener); err != nil {
		return err
	}
	p.Log.Info("Started", zap.String(logging.KeyVersion, version.String()), zap.Stringer("address", listener.Addr()))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var serving, probing error
	all.Go(func() { defer cancel(); serving = p.serveAPI(ctx, listener) })
	all.Go(func() { defer cancel(); probing = p.HTTP.Run(ctx) })
	all.Go(func() { p.Connection.Run(ctx) })
	all.Go(func() { p.Pool.Run(ctx, p.Caches.reprojectNodes) })
	all.Go(func() { p.Caches.runFetches(ctx) })
	all.Go(func() { p.Journal.runErasures(ctx) })
	all.Go(func() { p.Caches.runAdjuster(ctx) })
	for _, o := range p.Caches.all {
		all.Go(func() { o.reflector.Run(ctx) })
	}
	all.Wait()
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
	return addressfile.Write(p.Config.AddressFile, map[string]string{ //nolint:wrapcheck // it says all
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
	done := make(chan error, 1)
	// A client that speaks HTTP/1.1 needs a connection for each watch.
	listener = netutil.LimitListener(listener, p.Config.Client.MaxWatches+apiStreams)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serve the controller: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		server.Close()
	}
	<-done
	return nil
}

// apiStreams is the room for requests that are no watches.
const apiStreams = 64

var _ store.Journal = (*durableJournal)(nil)
