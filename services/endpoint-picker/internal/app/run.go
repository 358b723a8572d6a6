package app

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/config"
)

// Run runs the picker until ctx ends and the picker has drained, or until a part fails.
func Run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	loaded, err := loadConfiguration(ctx, cfg)
	if err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	p, err := newParts(cfg, log)
	if err != nil {
		return err
	}
	p.Reloader.SetPreparer(p.prepareConfig)
	if err := p.Reloader.LoadFirst(ctx, loaded); err != nil {
		return fmt.Errorf("load configuration: %w", err)
	}
	if err := p.openListeners(); err != nil {
		p.closeListeners()
		return err
	}
	scheme := "http"
	if cfg.Metrics.CertDir != "" {
		scheme = "https"
	}
	log.Info("Started", zap.String(logging.KeyVersion, version.String()), zap.String(logging.KeyPool, cfg.Pool.String()),
		zap.String("debugPage", debugPageURL(scheme, p.HTTP.MetricsAddress())))
	if err := p.runParts(ctx); err != nil {
		return err
	}
	log.Info("Stopped")
	return nil
}

// debugPageURL returns where a browser on this host finds the debug page, empty without a metrics address.
func debugPageURL(scheme, metrics string) string {
	host, port, err := net.SplitHostPort(metrics)
	if err != nil {
		return ""
	}
	if net.ParseIP(host).IsUnspecified() {
		host = "localhost"
	}
	page := url.URL{Scheme: scheme, Host: net.JoinHostPort(host, port), Path: "/debug/pools.html"}
	return page.String()
}

// openListeners opens all ports before any part starts, so that a port in use is an error at start.
func (p *parts) openListeners() error {
	if err := p.HTTP.Listen(); err != nil {
		return fmt.Errorf("start http server: %w", err)
	}
	if err := p.HealthListener.OpenListener(); err != nil {
		return fmt.Errorf("start gRPC health server: %w", err)
	}
	if err := p.ExtProcListener.OpenListener(); err != nil {
		return fmt.Errorf("start ext_proc server: %w", err)
	}
	if err := p.Decision.OpenListener(); err != nil {
		return fmt.Errorf("start decision API: %w", err)
	}
	if err := p.Proxy.OpenListener(); err != nil {
		return fmt.Errorf("start proxy: %w", err)
	}
	if p.Replicas != nil {
		if err := p.Replicas.OpenListener(); err != nil {
			return fmt.Errorf("--%s: %w", config.FlagReplicaBindAddress, err)
		}
	}
	return p.writeAddresses()
}

// closeListeners closes the ports of servers that do not run.
func (p *parts) closeListeners() {
	p.HealthListener.Close()
	p.ExtProcListener.Close()
	p.Decision.Close()
	p.Proxy.Close()
	if p.Replicas != nil {
		p.Replicas.Close()
	}
}

// writeAddresses writes where the picker listens to --address-file, by the names of the listeners.
func (p *parts) writeAddresses() error {
	if p.Config.AddressFile == "" {
		return nil
	}
	addresses := map[string]string{
		"grpc":        p.ExtProcListener.ListenAddress(),
		"grpc-health": p.HealthListener.ListenAddress(),
		"decision":    p.Decision.ListenAddress(),
		"proxy":       p.Proxy.ListenAddress(),
		"metrics":     p.HTTP.MetricsAddress(),
		"health":      p.HTTP.HealthAddress(),
	}
	if p.Replicas != nil {
		addresses["replica"] = p.Replicas.ListenAddress()
	}
	return addressfile.Write(p.Config.AddressFile, addresses)
}

// runParts starts every part, waits for ctx, drains, and stops the other parts. The parts run in a separate context, because open
// and new requests need endpoints and their load until the last request ends.
func (p *parts) runParts(ctx context.Context) error {
	for _, f := range p.Config.Unused {
		p.Log.Info("Flag has no effect", zap.String("flag", f.Name), zap.String("reason", f.Why))
	}
	p.State.LoadCaches()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, work := errgroup.WithContext(work)
	parts := []func(context.Context){p.Pools.Run, p.Health.Run, p.Events.Run, p.Reloader.Run, p.Certificates.Run, p.Tracer.Run,
		p.State.Run}
	if p.Recorder != nil {
		parts = append(parts, p.Recorder.Run)
	}
	for _, part := range parts {
		group.Go(func() error {
			part(work)
			return nil
		})
	}
	group.Go(func() error { return p.HTTP.Run(work) })
	if p.Replicas != nil {
		group.Go(func() error { return p.Replicas.Run(work) })
	}
	group.Go(p.HealthListener.Run)
	group.Go(p.ExtProcListener.Run)
	group.Go(p.Decision.Run)
	group.Go(func() error { return p.runProxy(work) })

	select {
	case <-ctx.Done():
	case <-work.Done(): // a part failed: do not wait for the others
	}
	p.drainServers(work)
	stop()
	p.HealthListener.Close()
	return group.Wait()
}

// runProxy runs the proxy. With --servers, a process can get the connections of a draining one before it is ready. It accepts them when the
// names of the servers have been looked up, after 2 s at the latest.
func (p *parts) runProxy(work context.Context) error {
	if len(p.Config.Pool.Servers.URLs) > 0 {
		select {
		case <-p.Pools.Synced():
		case <-work.Done():
		}
	}
	return p.Proxy.Run()
}

// refusalTime is the time before the end of a drain in which requests that still wait for an endpoint are refused, so that their clients
// get an answer.
const refusalTime = time.Second

// drainServers ends the ext_proc server, the proxy and the decision API:
//
//	unready, accepting       until gateways have heard of it          --drain-delay
//	accepting nothing new    until the last stream and pick has ended  --drain-timeout
//	refused                  requests that still wait for an endpoint   a second before the end
//	cut                      what is open after that
//
// From the start, the proxy and the decision API ask their clients to use other connections. The decision API accepts outcomes until the
// last open pick has its own. With --servers, the next process can open the port of the proxy before this one closes it.
func (p *parts) drainServers(work context.Context) {
	limits := p.Config.Drain
	p.Health.SetDraining()
	p.Proxy.StartDraining()
	p.Decision.StartDraining()
	p.State.WriteSoon() // the next process may start before this one ends
	p.Log.Info("Started draining", zap.Int("streams", p.ExtProc.InFlight()), zap.Int("requests", p.Proxy.InFlight()), zap.Int("picks",
		p.Decision.PickStats().Open),
		zap.Duration("delay", limits.Delay), zap.Duration("timeout", limits.Timeout))
	select {
	case <-p.Clock.After(limits.Delay):
	case <-work.Done():
	}
	bounded, cancel := context.WithTimeout(work, limits.Timeout)
	defer cancel()
	defer time.AfterFunc(limits.Timeout-refusalTime, p.Pools.CloseQueues).Stop()
	var ending sync.WaitGroup
	ending.Go(func() {
		if n := p.ExtProc.InFlight; !p.ExtProcListener.DrainStreams(bounded) && n() > 0 {
			p.Log.Warn("Cut streams still open at the end of the drain", zap.Int("streams", n()))
		}
		p.ExtProcListener.Close()
	})
	ending.Go(func() {
		if n := p.Proxy.InFlight; !p.Proxy.DrainConns(bounded) && n() > 0 {
			p.Log.Warn("Cut requests still open at the end of the drain", zap.Int("requests", n()))
		}
		p.Proxy.Close()
	})
	ending.Go(func() {
		if n := p.Decision.DrainAll(bounded); n > 0 {
			p.Log.Warn("Ended picks still without an outcome at the end of the drain", zap.Int("picks", n))
		}
		p.Decision.Close()
	})
	ending.Wait()
}
