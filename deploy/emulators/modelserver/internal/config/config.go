// Package config contains the model server's configuration: defaults, flags and validation.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/emulators/modelserver/internal/api"
	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/steptime"
)

// Config is the configuration of a model server.
type Config struct {
	Port        int
	AddressFile string // empty: none
	PodName     string
	PodIP       string // empty: the address of each connection
	Models      []string
	LoRAModules []string
	Seed        uint64
	Engine      engine.Spec
	Output      OutputLengths

	Profile   Profile
	Tokenizer string
	Names     metrics.Names
	Habits    api.Habits
	KeepAlive time.Duration // of an idle connection; 0: no limit
	HTTP2     bool

	StartupDelay     time.Duration
	DrainDelay       time.Duration
	ShutdownTimeout  time.Duration
	Fault            faults.Fault
	AllowFaultHeader bool

	Logging logging.Options
}

// Default returns the configuration of a plain server that resembles an 8B model on one recent GPU. Its name and address come from
// environment variables that a pod sets with the downward API.
func Default() Config {
	return Config{
		Port:    8000,
		PodName: os.Getenv("POD_NAME"),
		PodIP:   os.Getenv("POD_IP"),
		Models:  []string{"meta-llama/Llama-3.1-8B-Instruct"},
		Engine: engine.Spec{
			MaxNumSeqs: 48, MaxNumBatchedTokens: 2048, NumBlocks: 4096, BlockSize: 16, MaxModelLen: 16384, MaxLoRAs: 4,
			Law: steptime.Linear(), Speed: 1,
		},
		Profile:         Plain,
		Tokenizer:       TokenizerFourBytes,
		Names:           metrics.NewNames,
		Habits:          api.Habits{ReadyPath: true, PromptTokensDetails: true, StreamInterval: 1},
		HTTP2:           true,
		DrainDelay:      5 * time.Second,
		ShutdownTimeout: 120 * time.Second,
		Logging:         logging.DefaultOptions(),
	}
}

// AddFlags binds the configuration to flags. The defaults of the flags are the current values.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Port, "port", c.Port, "Port for HTTP without TLS. 0: any free port.")
	fs.StringVar(&c.AddressFile, "address-file", c.AddressFile, `File to write the address of the server to, as JSON with the name "http". Empty: none.`)
	fs.StringVar(&c.PodName, "pod-name", c.PodName, "Name in x-served-by and system_fingerprint; default $POD_NAME, else the host name.")
	fs.StringVar(&c.PodIP, "pod-ip", c.PodIP, "Address in x-served-endpoint; default $POD_IP, else the address of each connection.")
	fs.StringSliceVar(&c.Models, "model", c.Models, "Served names of the model, comma-separated. Metrics use the first name.")
	fs.StringSliceVar(&c.LoRAModules, "lora-modules", c.LoRAModules, "Names of LoRA adapters, as NAME or NAME=PATH, comma-separated.")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "Seed of answers, their lengths, the noise of step times, and faults with a rate.")
	fs.Var(&c.Output, "output-tokens", "Length of answers that end with stop, as N or MIN-MAX. By default the request limits the length.")
	fs.DurationVar(&c.StartupDelay, "startup-delay", c.StartupDelay, "Loading time of the model: only probes, /version and /admin work.")
	fs.DurationVar(&c.DrainDelay, "drain-delay", c.DrainDelay, "Time after SIGTERM in which the server is not ready, but still serves.")
	fs.Var((*seconds)(&c.ShutdownTimeout), "shutdown-timeout",
		"Time limit of running requests after --drain-delay, in seconds. 0 aborts them immediately at SIGTERM.")
	fs.Var(&c.Fault, "fault", faults.Usage())
	fs.BoolVar(&c.AllowFaultHeader, "allow-fault-header", c.AllowFaultHeader, "Obey the request header x-fault.")
	c.addEngineFlags(fs)
	c.addHabitFlags(fs)
	c.Logging.AddFlags(fs)
}

func (c *Config) addEngineFlags(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.IntVar(&e.MaxModelLen, "max-model-len", e.MaxModelLen, "Maximum number of tokens of one request, prompt and answer together.")
	fs.IntVar(&e.MaxNumSeqs, "max-num-seqs", e.MaxNumSeqs, "Maximum number of running requests. Other requests wait.")
	fs.IntVar(&e.MaxNumBatchedTokens, "max-num-batched-tokens", e.MaxNumBatchedTokens, "Maximum number of tokens of one step.")
	fs.IntVar(&e.NumBlocks, "num-gpu-blocks", e.NumBlocks, "Number of blocks of the KV cache.")
	fs.IntVar(&e.BlockSize, "block-size", e.BlockSize, "Number of tokens of one block.")
	fs.IntVar(&e.MaxLoRAs, "max-loras", e.MaxLoRAs, "Maximum number of LoRA adapters of running requests.")
	fs.Float64Var(&e.Speed, "speed", e.Speed, "Speed factor: 0.25 is four times slower.")
	l := &e.Law
	fs.DurationVar(&l.Base, "step-base", l.Base, "Base time of a step.")
	fs.DurationVar(&l.PerSeq, "step-per-seq", l.PerSeq, "Additional time of a step for each decoding request.")
	fs.DurationVar(&l.PerToken, "prefill-per-token", l.PerToken, "Additional time of a step for each uncached prompt token.")
	fs.DurationVar(&l.PerContext, "step-per-context-token", l.PerContext, "Additional time of a step for each token in the KV cache.")
	fs.DurationVar(&l.PerMegaPair, "prefill-per-megapair", l.PerMegaPair,
		"Additional time of a step for each million pairs of a prompt token and a token that it attends to.")
	fs.Float64Var(&l.Noise, "step-noise", l.Noise, "Standard deviation of the logarithm of a step's time.")
	fs.BoolVar(&l.Graphs, "cuda-graphs", l.Graphs, "Pad decoding requests to the next batch size with a CUDA graph.")
}

// Complete sets the values that come from the profile or the host. fs has the flags of AddFlags, and is already parsed.
func (c *Config) Complete(fs *pflag.FlagSet) error {
	c.Engine.Seed = c.Seed
	if err := c.Profile.apply(fs); err != nil {
		return err
	}
	if c.PodName != "" {
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("get host name: %w: give --pod-name", err)
	}
	c.PodName = name
	return nil
}

// NewTokenizer returns the configured tokenizer.
func (c *Config) NewTokenizer() (tokens.Tokenizer, error) {
	if c.Tokenizer == TokenizerFourBytes {
		return tokens.FourBytes{}, nil
	}
	return tokens.NewBPE()
}

// Validate returns an error with all invalid values.
func (c *Config) Validate() error {
	errs := []error{c.Engine.Validate(), c.Logging.Validate(), c.validateHabits()}
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Port < 0 || c.Port > 65535 {
		fail("port must be between 0 and 65535, got %d", c.Port)
	}
	if c.PodIP != "" && net.ParseIP(c.PodIP) == nil {
		fail("pod-ip must be an IP address, got %q", c.PodIP)
	}
	if len(c.Models) == 0 {
		fail("model must have a name")
	}
	seen := make(map[string]bool)
	for _, name := range append(c.Models[:len(c.Models):len(c.Models)], c.Adapters()...) {
		if name == "" || seen[name] {
			fail("model and lora-modules must have distinct names, got %q", name)
		}
		seen[name] = true
	}
	if min(c.StartupDelay, c.DrainDelay, c.ShutdownTimeout, c.KeepAlive, c.Habits.PageTime, c.Habits.KeepAliveInterval) < 0 {
		fail("startup-delay, drain-delay, shutdown-timeout, keep-alive-timeout, metrics-time and sse-keep-alive-interval must not be negative")
	}
	return errors.Join(errs...)
}

// Adapters returns the names of the LoRA adapters.
func (c *Config) Adapters() []string {
	names := make([]string, len(c.LoRAModules))
	for i, module := range c.LoRAModules {
		names[i], _, _ = strings.Cut(module, "=")
	}
	return names
}

// OutputLengths is a tokens.Lengths that implements pflag.Value.
type OutputLengths struct {
	tokens.Lengths
}

// Set implements pflag.Value.
func (l *OutputLengths) Set(s string) error {
	parsed, err := tokens.ParseLengths(s)
	l.Lengths = parsed
	return err
}

// Type implements pflag.Value.
func (*OutputLengths) Type() string { return "lengths" }
