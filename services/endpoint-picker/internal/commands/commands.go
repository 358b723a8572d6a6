// Package commands is the command line of the program. Without a subcommand, the program serves gateways. Subcommand replay plays a
// recording offline.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/app"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
	"fairlead.dev/services/endpoint-picker/internal/replay"
)

// exitUsage is the exit code for flags, arguments and configurations of the plugins that are invalid.
const exitUsage = 2

// usageError gives a mistake of the user its exit code.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return service.WithExitCode(err, exitUsage)
}

// New returns the command line with its arguments. It writes results to out, and logs and remarks to log.
func New(args []string, out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	root := service.NewCommand(service.Program{
		Name: "endpoint-picker", Short: "Tell inference gateways which model server takes each request",
		AddFlags: cfg.AddFlags, Check: func(fs *pflag.FlagSet) error { return usageError(cfg.Complete(fs)) }, Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return servePicker(ctx, cfg, log) },
		PrintGraph: app.PrintGraph,
	}, out, log)
	root.Args = noArguments
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(config.FlagError(cmd.Flags(), err)) })
	root.Flags().SortFlags = false
	root.Flags().Bool("version", false, "Print the version and exit.")
	root.AddCommand(newReplay(out, log))
	root.SetArgs(config.DoubleDashes(root.Flags(), args))
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		if args[0] == "true" || args[0] == "false" {
			return usageError(fmt.Errorf("unexpected argument %q: the value of a switch follows =, as in --tracing=%s", args[0], args[0]))
		}
		return usageError(fmt.Errorf("unexpected argument %q: all settings are flags, see --help", args[0]))
	}
	return nil
}

func servePicker(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	if e := &cfg.ExtProc; e.FitMemory(debug.SetMemoryLimit(-1)) {
		log.Warn("The memory limit is small, so the picker accepts less than its flags say: raise the memory limit of the container, or lower the flags",
			zap.Stringer("max-buffered-bytes", &e.MaxBuffered), zap.Stringer("max-request-body", &e.MaxRequestBody))
	}
	err := app.Run(ctx, cfg, log)
	if errors.Is(err, reload.ErrUnusable) {
		return usageError(err)
	}
	return err
}

func newReplay(out, log io.Writer) *cobra.Command {
	o := replay.DefaultOptions()
	cmd := &cobra.Command{
		Use:   "replay --recording FILE",
		Short: "Play a recording in virtual time, and compare configurations",
		Long: "Play a recording in virtual time against simulated model servers, and print how the default configuration, another one and\n" +
			"reference policies compare. It needs no cluster and no GPU. Recordings of --record-file and Mooncake's traces are accepted, also\n" +
			"compressed by gzip. Without --profile, servers resemble a model of 8 billion parameters on one H100.",
		Example: "  endpoint-picker replay --recording=picks.jsonl --config=plugins.yaml\n" +
			"  endpoint-picker replay --recording=mooncake.jsonl.gz --servers=16 --load=0.7",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return usageError(err)
			}
			return replay.Run(cmd.Context(), o, out, log)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&o.Recording, "recording", o.Recording, "File with the recording.")
	fs.StringVar(&o.Config, "config", o.Config, "File with an EndpointPickerConfig to compare with the default configuration.")
	fs.StringVar(&o.Profile, "profile", o.Profile, "File with a profile of the model servers. Empty: a model of 8 billion parameters on one H100.")
	fs.IntVar(&o.Servers, "servers", o.Servers, "Number of model servers. 0: as many as the recorded pool had.")
	fs.IntVar(&o.Replicas, "replicas", o.Replicas, "Number of independent replicas of the picker, which get the requests in turn.")
	fs.Float64Var(&o.Load, "load", o.Load, "Play at this part of the rate that the greedy policy sustains. 0: at the recorded rate.")
	fs.Float64Var(&o.Rate, "rate", o.Rate, "Play at this number of requests per second. 0: at the recorded rate.")
	fs.StringVar(&o.Pool, "pool", o.Pool, "Play the requests of this pool, if the recording has several.")
	fs.IntVar(&o.Requests, "requests", o.Requests, "Play this number of requests from the beginning. 0: all.")
	fs.Uint64Var(&o.Seed, "seed", o.Seed, "Seed of the random numbers. The same seed gives the same table.")
	return cmd
}
