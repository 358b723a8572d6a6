package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/config"
	"fairlead.dev/services/endpoint-picker/internal/pluginconfig/reload"
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

// NewCommand returns the command line of the program, which serves gateways, with its arguments. It writes results to out, and logs and
// remarks to log.
func NewCommand(args []string, out, log io.Writer) *cobra.Command {
	cfg := config.Default()
	root := service.NewCommand(service.Program{
		Name: name, Short: "Tell inference gateways which model server takes each request",
		AddFlags: cfg.AddFlags, Check: func(fs *pflag.FlagSet) error { return usageError(cfg.Complete(fs)) }, Logging: &cfg.Logging,
		Run:        func(ctx context.Context, log *zap.Logger) error { return servePicker(ctx, cfg, log) },
		PrintGraph: printGraph,
	}, out, log)
	root.Args = noArguments
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError(service.FlagError(cmd.Flags(), err)) })
	root.Flags().SortFlags = false
	root.Example = "  endpoint-picker --servers=http://10.0.0.1:8000,http://10.0.0.2:8000 --proxy-bind-address=:8080"
	root.Flags().Bool("version", false, "Print the version and exit.")
	root.AddCommand(newReplay())
	root.SetArgs(config.DoubleDashes(root.Flags(), args))
	return root
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		if args[0] == "true" || args[0] == "false" {
			return usageError(fmt.Errorf("unexpected argument %q: the value of a switch follows =, as in --tracing=%s", args[0], args[0]))
		}
		if strings.Contains(args[0], "://") {
			return usageError(fmt.Errorf("unexpected argument %q: --servers takes all URLs, with commas between them", args[0]))
		}
		return usageError(fmt.Errorf("unexpected argument %q: all settings are flags, see --help", args[0]))
	}
	return nil
}

func servePicker(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	if e := &cfg.ExtProc; e.FitMemory(debug.SetMemoryLimit(-1)) {
		log.Warn("The memory limit is small, so the picker accepts less than its flags say: raise the memory limit of the container, or "+
			"lower the flags",
			zap.Stringer("max-buffered-bytes", &e.MaxBuffered), zap.Stringer("max-request-body", &e.MaxRequestBody))
	}
	err := Run(ctx, cfg, log)
	if errors.Is(err, reload.ErrUnusable) {
		return usageError(err)
	}
	return err
}

// newReplay returns the command of earlier versions, which says what replays recordings now.
func newReplay() *cobra.Command {
	return &cobra.Command{
		Use: "replay", Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return usageError(errors.New("replay is a program of its own: run endpoint-picker-replay with the same flags"))
		},
	}
}
