// Command endpoint-picker tells inference gateways which model server takes each request.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/memlimit"
	"fairlead.dev/pkg/version"
	"fairlead.dev/services/endpoint-picker/internal/app"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cfg, err := config.Parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil:
		fail(exitUsage, err)
	case cfg.Command == config.CommandVersion:
		fmt.Println("endpoint-picker", version.String(), version.Commit())
		return
	case cfg.Command == config.CommandGraph:
		err = app.PrintGraph(os.Stdout)
	default:
		err = serve(ctx, cfg)
	}
	switch {
	case errors.Is(err, reload.ErrUnusable):
		fail(exitUsage, err)
	case err != nil:
		fail(exitFailed, err)
	}
}

func serve(ctx context.Context, cfg *config.Config) error {
	log, err := logging.New(cfg.Logging, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // stderr need not be a file that can be synced
	logging.BridgeKlog(log)
	memlimit.Set(log)
	limit := debug.SetMemoryLimit(-1)
	if cfg.Decision.Enabled() {
		limit /= 2 // its bodies and open picks may take as much as those of gateways
	}
	if e := &cfg.ExtProc; e.FitMemory(limit) {
		log.Warn("The memory limit is small, so the picker accepts less than its flags say: raise the memory limit of the container, or lower the flags",
			zap.Stringer("max-buffered-bytes", &e.MaxBuffered), zap.Stringer("max-request-body", &e.MaxRequestBody))
	}
	return app.Run(ctx, cfg, log)
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, "endpoint-picker:", strings.ReplaceAll(err.Error(), "\n", "; "))
	os.Exit(code)
}
