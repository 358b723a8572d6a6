// Modelserver emulates a vLLM server without a model or a GPU: OpenAI's API, vLLM's metrics, and the timing of continuous batching
// with a prefix cache.
package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/internal/cli"
	"fairlead.dev/deploy/emulators/modelserver/internal/app"
	"fairlead.dev/deploy/emulators/modelserver/internal/config"
	"fairlead.dev/pkg/logging"
)

func main() { cli.Main("modelserver", run) }

func run(ctx context.Context, args []string) error {
	cfg := config.Default()
	fs := pflag.NewFlagSet("modelserver", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	if done, err := cli.Parse(fs, args, os.Stdout); done {
		return err
	}
	if err := errors.Join(cfg.Complete(fs), cfg.Validate()); err != nil {
		return err
	}
	log, err := logging.New(cfg.Logging, os.Stderr)
	if err != nil {
		return err
	}
	return app.Run(ctx, cfg, log)
}
