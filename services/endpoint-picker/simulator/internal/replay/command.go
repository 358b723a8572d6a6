package replay

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fairlead.dev/pkg/service"
	"fairlead.dev/pkg/version"
)

// exitUsage is the exit code for flags and arguments that are invalid.
const exitUsage = 2

// NewCommand returns the command line of the program. It writes the comparison to out, and remarks to log.
func NewCommand(out, log io.Writer) *cobra.Command {
	o := DefaultOptions()
	cmd := &cobra.Command{
		Use:   "endpoint-picker-replay --recording FILE",
		Short: "Play a recording in virtual time, and compare configurations",
		Long: "Play a recording in virtual time against simulated model servers, and print how the default configuration, another one " +
			"and\n" +
			"reference policies compare. It needs no cluster and no GPU. Recordings of --record-file and Mooncake's traces are accepted, " +
			"also\n" +
			"compressed by gzip. Without --profile, servers resemble a model of 8 billion parameters on one H100.",
		Example: "  endpoint-picker-replay --recording=picks.jsonl --config=plugins.yaml\n" +
			"  endpoint-picker-replay --recording=mooncake.jsonl.gz --servers=16 --load=0.7",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return service.WithExitCode(fmt.Errorf("unexpected argument %q: all settings are flags, see --help", args[0]), exitUsage)
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		Version: version.String() + " " + version.Commit(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return service.WithExitCode(err, exitUsage)
			}
			return Run(cmd.Context(), o, out, log)
		},
	}
	cmd.SetOut(out)
	cmd.SetErr(log)
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return service.WithExitCode(service.FlagError(cmd.Flags(), err), exitUsage)
	})
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *Options) addFlags(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.Recording, "recording", o.Recording, "File with the recording.")
	fs.StringVar(&o.Config, "config", o.Config, "File with an EndpointPickerConfig to compare with the default configuration.")
	fs.StringVar(&o.Profile, "profile", o.Profile,
		"File with a profile of the model servers. Empty: a model of 8 billion parameters on one H100.")
	fs.IntVar(&o.Servers, "servers", o.Servers, "Number of model servers. 0: as many as the recorded pool had.")
	fs.IntVar(&o.Replicas, "replicas", o.Replicas, "Number of independent replicas of the picker, which get the requests in turn.")
	fs.Float64Var(&o.Load, "load", o.Load, "Play at this part of the rate that the greedy policy sustains. 0: at the recorded rate.")
	fs.Float64Var(&o.Rate, "rate", o.Rate, "Play at this number of requests per second. 0: at the recorded rate.")
	fs.StringVar(&o.Pool, "pool", o.Pool, "Play the requests of this pool, if the recording has several.")
	fs.IntVar(&o.Requests, "requests", o.Requests, "Play this number of requests from the beginning. 0: all.")
	fs.Uint64Var(&o.Seed, "seed", o.Seed, "Seed of the random numbers. The same seed gives the same table.")
}
