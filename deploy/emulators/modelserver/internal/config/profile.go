package config

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/pkg/steptime"
)

// The tokenizers.
const (
	TokenizerFourBytes = "four-bytes"
	TokenizerBPE       = "cl100k_base"
)

// Profile selects the defaults of the flags for the behavior of real servers.
type Profile string

// The profiles.
const (
	Plain     Profile = "plain"     // exact and simple, for tests of other subjects
	Realistic Profile = "realistic" // like vLLM 0.32 on an H100
)

// Set implements pflag.Value.
func (p *Profile) Set(s string) error {
	if Profile(s) != Plain && Profile(s) != Realistic {
		return fmt.Errorf("%q is not %s or %s", s, Plain, Realistic)
	}
	*p = Profile(s)
	return nil
}

// Type implements pflag.Value.
func (*Profile) Type() string { return "profile" }

// String implements pflag.Value.
func (p *Profile) String() string { return string(*p) }

// apply sets the flags of the profile, except the flags that the user has set.
func (p *Profile) apply(fs *pflag.FlagSet) error {
	if *p == Plain {
		return nil
	}
	for name, value := range realistic() {
		if fs.Changed(name) {
			continue
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("apply profile %s: %w", *p, err)
		}
	}
	return nil
}

// realistic returns the flags of the profile Realistic.
func realistic() map[string]string {
	law := steptime.Realistic()
	return map[string]string{
		"step-per-context-token":       law.PerContext.String(),
		"prefill-per-megapair":         law.PerMegaPair.String(),
		"step-noise":                   strconv.FormatFloat(law.Noise, 'g', -1, 64),
		"cuda-graphs":                  strconv.FormatBool(law.Graphs),
		"tokenizer":                    TokenizerBPE,
		"stale-gauges":                 "true",
		"metrics-time":                 "10ms", // measured: 4 to 15 ms for a page of this size
		"drain-delay":                  "0s",
		"shutdown-timeout":             "0",
		"ready-path":                   "false",
		"keep-alive-timeout":           "5s", // VLLM_HTTP_TIMEOUT_KEEP_ALIVE
		"http2":                        "false",
		"enable-prompt-tokens-details": "false",
		"coalesce-events":              "true",
	}
}

// addHabitFlags binds the behavior of real servers that many tests do not need.
func (c *Config) addHabitFlags(fs *pflag.FlagSet) {
	h := &c.Habits
	fs.Var(&c.Profile, "profile", "Defaults of the flags for the behavior of real servers: plain or realistic.")
	fs.StringVar(&c.Tokenizer, "tokenizer", c.Tokenizer, "Tokenizer: four-bytes, or cl100k_base for a real tokenizer.")
	fs.Var(&c.Names, "metrics-names", "Generation of metric names: new, old or both.")
	fs.DurationVar(&h.PageTime, "metrics-time", h.PageTime, "Time for which a metrics page delays the sending of tokens.")
	fs.BoolVar(&c.Engine.StaleGauges, "stale-gauges", c.Engine.StaleGauges, "Show the gauges of the end of the last step.")
	fs.DurationVar(&c.KeepAlive, "keep-alive-timeout", c.KeepAlive, "Time limit of idle connections; 0 for no limit.")
	fs.BoolVar(&c.HTTP2, "http2", c.HTTP2, "Also serve HTTP/2 without TLS.")
	fs.BoolVar(&h.ReadyPath, "ready-path", h.ReadyPath, "Serve /ready.")
	fs.BoolVar(&h.PromptTokensDetails, "enable-prompt-tokens-details", h.PromptTokensDetails, "Report cached prompt tokens in usage.")
	fs.BoolVar(&h.CoalesceEvents, "coalesce-events", h.CoalesceEvents, "Send accumulated tokens in one event.")
	fs.BoolVar(&h.RoleFirst, "role-first", h.RoleFirst, "Send the chunk with the role of a chat answer before the prefill.")
	fs.DurationVar(&h.KeepAliveInterval, "sse-keep-alive-interval", h.KeepAliveInterval,
		"Time between comments of a stream before its first token; 0 for none.")
	fs.IntVar(&h.StreamInterval, "stream-interval", h.StreamInterval, "Number of tokens of one event, after the first token.")
}

func (c *Config) validateHabits() error {
	if c.Tokenizer != TokenizerFourBytes && c.Tokenizer != TokenizerBPE {
		return fmt.Errorf("tokenizer must be %s or %s, got %q", TokenizerFourBytes, TokenizerBPE, c.Tokenizer)
	}
	if c.Habits.StreamInterval < 1 {
		return fmt.Errorf("stream-interval must be at least 1, got %d", c.Habits.StreamInterval)
	}
	return nil
}

// seconds is a duration flag: a number of seconds, as in vLLM, or a duration with a unit.
type seconds time.Duration

// Set implements pflag.Value.
func (d *seconds) Set(s string) error {
	if n, err := strconv.Atoi(s); err == nil {
		*d = seconds(time.Duration(n) * time.Second)
		return nil
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a number of seconds: %w", s, err)
	}
	*d = seconds(parsed)
	return nil
}

// Type implements pflag.Value.
func (*seconds) Type() string { return "seconds" }

// String implements pflag.Value.
func (d *seconds) String() string {
	return strconv.FormatFloat(time.Duration(*d).Seconds(), 'g', -1, 64)
}
