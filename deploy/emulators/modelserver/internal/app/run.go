// Package app runs a model server from its start to the end of its drain.
//
//	loading  -- startup delay -->  serving  -- ctx ends -->  draining  -- drain delay -->  closing  -- all answered -->  end
//
// While draining, the server is not ready but accepts requests, because a picker and a gateway notice the drain late. vLLM does
// not have this state: its drain delay is 0. While closing, the server does not listen, and running requests finish. The server
// aborts requests that run longer than the shutdown timeout. With a shutdown timeout of 0 it skips the drain, and aborts all
// requests immediately.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"

	"fairlead.dev/deploy/emulators/modelserver/internal/api"
	"fairlead.dev/deploy/emulators/modelserver/internal/config"
	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/pkg/addressfile"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
)

// vllmVersion is the emulated version of vLLM.
const vllmVersion = "0.32.0"

// Run serves on the configured port until ctx ends and the drain is over.
func Run(ctx context.Context, cfg config.Config, log *zap.Logger) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", cfg.Port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if cfg.AddressFile != "" {
		if err := addressfile.Write(cfg.AddressFile, map[string]string{"http": l.Addr().String()}); err != nil {
			return errors.Join(err, l.Close())
		}
	}
	return Serve(ctx, cfg, l, log)
}

// Serve is like Run, but with a listener, which it closes.
func Serve(ctx context.Context, cfg config.Config, l net.Listener, log *zap.Logger) error {
	tokenizer, err := cfg.NewTokenizer()
	if err != nil {
		return fmt.Errorf("create tokenizer: %w", err)
	}
	driver := engine.NewDriver(cfg.Engine)
	server := api.New(api.Params{
		PodName:          cfg.PodName,
		PodIP:            cfg.PodIP,
		Models:           cfg.Models,
		Adapters:         cfg.Adapters(),
		Seed:             cfg.Seed,
		Output:           cfg.Output.Lengths,
		AllowFaultHeader: cfg.AllowFaultHeader,
		Version:          vllmVersion,
		Tokenizer:        tokenizer,
		Habits:           cfg.Habits,
		Spec:             cfg.Engine,
		Driver:           driver,
		Page: metrics.NewPage(metrics.Params{
			Model: cfg.Models[0], Spec: cfg.Engine, Started: time.Now(), Names: cfg.Names, LoRA: len(cfg.LoRAModules) > 0,
		}),
		Faults: faults.NewRegister(cfg.Seed, faults.Set{Answer: cfg.Fault}),
		Log:    log,
	})
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx)) // the engine runs until the last answer
	engineDone := make(chan struct{})
	go func() {
		defer close(engineDone)
		driver.Run(engineCtx)
	}()
	defer func() {
		stopEngine()
		<-engineDone
	}()

	log.Info("Started model server", zap.Stringer(logging.KeyAddress, l.Addr()), zap.String(logging.KeyName, cfg.PodName),
		zap.Strings("models", cfg.Models), zap.String(logging.KeyVersion, version.String()))
	return serveAndDrain(ctx, cfg, server, l, log)
}

func serveAndDrain(ctx context.Context, cfg config.Config, server *api.Server, l net.Listener, log *zap.Logger) error {
	load := func() {
		server.Loaded()
		log.Info("Loaded model", zap.Duration(logging.KeyDuration, cfg.StartupDelay))
	}
	if cfg.StartupDelay == 0 {
		load() // before the first request
	} else {
		defer time.AfterFunc(cfg.StartupDelay, load).Stop()
	}
	httpServer := &http.Server{
		Handler: server, Protocols: protocols(cfg.HTTP2), ReadHeaderTimeout: time.Minute, ErrorLog: zap.NewStdLog(log),
		IdleTimeout: cfg.KeepAlive,
	}
	failed := make(chan error, 1)
	go func() { failed <- httpServer.Serve(l) }()

	select {
	case err := <-failed:
		return fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
	}
	err := drain(cfg, server, httpServer, log)
	<-failed // http.ErrServerClosed
	return err
}

// protocols returns HTTP/1.1 and, if http2 is set, HTTP/2 without TLS on the same port.
func protocols(http2 bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(http2)
	return p
}

// drain drains and stops the server.
func drain(cfg config.Config, server *api.Server, httpServer *http.Server, log *zap.Logger) error {
	start := time.Now()
	server.Drain()
	if cfg.ShutdownTimeout == 0 {
		log.Info("Stopped model server without a drain: the shutdown timeout is 0")
		return closeNow(httpServer)
	}
	log.Info("Started drain", zap.Duration("delay", cfg.DrainDelay), zap.Duration("timeout", cfg.ShutdownTimeout))
	time.Sleep(cfg.DrainDelay)
	server.ReleaseHung()
	ctx, cancel := context.WithTimeout(context.Background(), cfg.ShutdownTimeout)
	defer cancel()
	err := httpServer.Shutdown(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		log.Warn("Aborted requests that exceeded the shutdown timeout", zap.Duration(logging.KeyDuration, time.Since(start)))
		return closeNow(httpServer)
	case err != nil:
		return fmt.Errorf("shut down HTTP server: %w", err)
	}
	log.Info("Stopped model server", zap.Duration(logging.KeyDuration, time.Since(start)))
	return nil
}

func closeNow(httpServer *http.Server) error {
	if err := httpServer.Close(); err != nil {
		return fmt.Errorf("close HTTP server: %w", err)
	}
	return nil
}
