// Package config is the model server's configuration: its defaults, its flags and what is wrong with it.
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
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/logging"
	"fairlead.dev/pkg/steptime"
)

// Config is everything that can be set.
type Config struct {
	Port        int
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
	KeepAlive time.Duration // of an idle connection; 0: for ever
	HTTP2     bool

	StartupDelay     time.Duration
	DrainDelay       time.Duration
	ShutdownTimeout  time.Duration
	AllowFaultHeader bool

	Logging logging.Options
}

// Default is a plain server that resembles an 8B model on one recent GPU. Names come from the environment that a pod gets by
// the downward API.
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

// AddFlags binds the configuration to flags, whose defaults are its present values.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Port, "port", c.Port, "Port for HTTP without TLS.")
	fs.StringVar(&c.PodName, "pod-name", c.PodName, "Name in x-served-by and system_fingerprint; default $POD_NAME, else the host's name.")
	fs.StringVar(&c.PodIP, "pod-ip", c.PodIP, "Address in x-served-endpoint; default $POD_IP, else that of each connection.")
	fs.StringSliceVar(&c.Models, "model", c.Models, "Names that the model is served under; the first is the one in the metrics.")
	fs.StringSliceVar(&c.LoRAModules, "lora-modules", c.LoRAModules, "Names of LoRA adapters that are served besides, as NAME or NAME=PATH.")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "Seed of the answers, of their lengths, and of faults that have a rate.")
	fs.Var(&c.Output, "output-tokens", "Length at which answers end by themselves, as N or MIN-MAX; default max_tokens.")
	fs.DurationVar(&c.StartupDelay, "startup-delay", c.StartupDelay, "How long the model takes to load; until then only probes are answered.")
	fs.DurationVar(&c.DrainDelay, "drain-delay", c.DrainDelay, "How long new requests are still served after SIGTERM, not being ready.")
	fs.Var((*seconds)(&c.ShutdownTimeout), "shutdown-timeout", "How long running requests may take after that, in seconds; 0 aborts them.")
	fs.BoolVar(&c.AllowFaultHeader, "allow-fault-header", c.AllowFaultHeader, "Let requests ask for faults with the header x-fault.")
	c.addEngineFlags(fs)
	c.addHabitFlags(fs)
	c.Logging.AddFlags(fs)
}

func (c *Config) addEngineFlags(fs *pflag.FlagSet) {
	e := &c.Engine
	fs.IntVar(&e.MaxModelLen, "max-model-len", e.MaxModelLen, "Tokens of one request at most, prompt and answer together.")
	fs.IntVar(&e.MaxNumSeqs, "max-num-seqs", e.MaxNumSeqs, "Requests that run at once; others wait.")
	fs.IntVar(&e.MaxNumBatchedTokens, "max-num-batched-tokens", e.MaxNumBatchedTokens, "Tokens of one step at most; longer prompts are read in chunks.")
	fs.IntVar(&e.NumBlocks, "num-gpu-blocks", e.NumBlocks, "Blocks of the KV cache.")
	fs.IntVar(&e.BlockSize, "block-size", e.BlockSize, "Tokens of one block.")
	fs.IntVar(&e.MaxLoRAs, "max-loras", e.MaxLoRAs, "LoRA adapters that run at once.")
	fs.Float64Var(&e.Speed, "speed", e.Speed, "Factor of the speed: 0.25 is four times slower.")
	l := &e.Law
	fs.DurationVar(&l.Base, "step-base", l.Base, "Time of a step.")
	fs.DurationVar(&l.PerSeq, "step-per-seq", l.PerSeq, "Time of a step more for each decoding request.")
	fs.DurationVar(&l.PerToken, "prefill-per-token", l.PerToken, "Time of a step more for each uncached prompt token.")
	fs.DurationVar(&l.PerContext, "step-per-context-token", l.PerContext, "Time of a step more for each token in the KV cache of decoding requests.")
	fs.DurationVar(&l.PerMegaPair, "prefill-per-megapair", l.PerMegaPair, "Time of a step more for each million pairs of a prompt token and a token it attends to.")
	fs.Float64Var(&l.Noise, "step-noise", l.Noise, "Standard deviation of the logarithm of a step's time.")
	fs.BoolVar(&l.Graphs, "cuda-graphs", l.Graphs, "Pad decoding requests to the next batch size with a CUDA graph.")
}

// Complete fills in what the flags leave to the profile and to the machine. The flags are those of AddFlags, parsed.
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
		return fmt.Errorf("name this server: %w", err)
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

// Validate says what is wrong, all at once.
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
	if min(c.StartupDelay, c.DrainDelay, c.ShutdownTimeout, c.KeepAlive, c.Habits.PageTime) < 0 {
		fail("startup-delay, drain-delay, shutdown-timeout, keep-alive-timeout and metrics-time must not be negative")
	}
	return errors.Join(errs...)
}

// Adapters are the names of the LoRA adapters.
func (c *Config) Adapters() []string {
	names := make([]string, len(c.LoRAModules))
	for i, module := range c.LoRAModules {
		names[i], _, _ = strings.Cut(module, "=")
	}
	return names
}

// OutputLengths is a tokens.Lengths that can be a flag.
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
