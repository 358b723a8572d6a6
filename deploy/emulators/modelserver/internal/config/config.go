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

	"fairlead.dev/deploy/emulators/modelserver/internal/engine"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/logging"
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

	StartupDelay     time.Duration
	DrainDelay       time.Duration
	DrainTimeout     time.Duration
	AllowFaultHeader bool

	Logging logging.Options
}

// Default is a server that resembles an 8B model on one recent GPU. Names come from the environment that a pod gets by
// the downward API.
func Default() Config {
	return Config{
		Port:    8000,
		PodName: os.Getenv("POD_NAME"),
		PodIP:   os.Getenv("POD_IP"),
		Models:  []string{"meta-llama/Llama-3.1-8B-Instruct"},
		Engine: engine.Spec{
			MaxNumSeqs: 48, MaxNumBatchedTokens: 2048, NumBlocks: 4096, BlockSize: 16, MaxModelLen: 16384, MaxLoRAs: 4,
			StepBase: 6 * time.Millisecond, StepPerSeq: 150 * time.Microsecond, PrefillPerToken: 40 * time.Microsecond, Speed: 1,
		},
		DrainDelay:   5 * time.Second,
		DrainTimeout: 120 * time.Second,
		Logging:      logging.DefaultOptions(),
	}
}

// AddFlags binds the configuration to flags, whose defaults are its present values.
func (c *Config) AddFlags(fs *pflag.FlagSet) {
	fs.IntVar(&c.Port, "port", c.Port, "Port for HTTP/1.1 and HTTP/2 without TLS.")
	fs.StringVar(&c.PodName, "pod-name", c.PodName, "Name in x-served-by and system_fingerprint; default $POD_NAME, else the host's name.")
	fs.StringVar(&c.PodIP, "pod-ip", c.PodIP, "Address in x-served-endpoint; default $POD_IP, else that of each connection.")
	fs.StringSliceVar(&c.Models, "model", c.Models, "Names that the model is served under; the first is the one in the metrics.")
	fs.StringSliceVar(&c.LoRAModules, "lora-modules", c.LoRAModules, "Names of LoRA adapters that are served besides, as NAME or NAME=PATH.")
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "Seed of the answers, of their lengths, and of faults that have a rate.")
	fs.Var(&c.Output, "output-tokens", "Length at which answers end by themselves, as N or MIN-MAX; default max_tokens.")
	fs.DurationVar(&c.StartupDelay, "startup-delay", c.StartupDelay, "How long the model takes to load; until then only probes are answered.")
	fs.DurationVar(&c.DrainDelay, "drain-delay", c.DrainDelay, "How long new requests are still served after SIGTERM, not being ready.")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "How long running requests may take after that; 0 stops at once on SIGTERM.")
	fs.BoolVar(&c.AllowFaultHeader, "allow-fault-header", c.AllowFaultHeader, "Let requests ask for faults with the header x-fault.")
	c.addEngineFlags(fs)
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
	fs.DurationVar(&e.StepBase, "step-base", e.StepBase, "Time of a step.")
	fs.DurationVar(&e.StepPerSeq, "step-per-seq", e.StepPerSeq, "Time of a step more for each decoding request.")
	fs.DurationVar(&e.PrefillPerToken, "prefill-per-token", e.PrefillPerToken, "Time of a step more for each uncached prompt token.")
	fs.Float64Var(&e.Speed, "speed", e.Speed, "Factor of the speed: 0.25 is four times slower.")
}

// Complete fills in what is left to the machine.
func (c *Config) Complete() error {
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

// Validate says what is wrong, all at once.
func (c *Config) Validate() error {
	errs := []error{c.Engine.Validate(), c.Logging.Validate()}
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
	if c.StartupDelay < 0 || c.DrainDelay < 0 || c.DrainTimeout < 0 {
		fail("startup-delay, drain-delay and drain-timeout must not be negative")
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
