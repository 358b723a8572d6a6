// Modelserver looks like a vLLM server: OpenAI's API, vLLM's metrics, and the timing of continuous batching with a prefix
// cache, without a model or a GPU.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/modelserver/internal/app"
	"fairlead.dev/deploy/emulators/modelserver/internal/config"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/version"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "modelserver:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	cfg := config.Default()
	fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	showVersion := fs.Bool("version", false, "Print the version and exit.")
	switch err := fs.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return fmt.Errorf("parse flags: %w", err)
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case *showVersion:
		fmt.Println(version.String())
		return nil
	}
	if err := errors.Join(cfg.Complete(), cfg.Validate()); err != nil {
		return err
	}
	log, err := logging.New(cfg.Logging, os.Stderr)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return app.Run(ctx, cfg, log)
}
