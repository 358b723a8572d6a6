package config

import (
	"os"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/deploy/emulators/modelserver/internal/api"
	"fairlead.dev/deploy/emulators/modelserver/internal/faults"
	"fairlead.dev/deploy/emulators/modelserver/internal/metrics"
	"fairlead.dev/deploy/emulators/modelserver/internal/tokens"
	"fairlead.dev/pkg/steptime"
)

func parse(t *testing.T, args ...string) (Config, error) {
	t.Helper()
	cfg := Default()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	require.NoError(t, cfg.Complete(fs))
	return cfg, cfg.Validate()
}

func TestDefaultsAreValid(t *testing.T) {
	cfg, err := parse(t)
	require.NoError(t, err)
	assert.NotEmpty(t, cfg.PodName, "the default is the host name")
	assert.Equal(t, 8000, cfg.Port)
}

func TestPodGivesItsName(t *testing.T) {
	t.Setenv("POD_NAME", "modelserver-0")
	t.Setenv("POD_IP", "10.0.0.7")
	cfg, err := parse(t)
	require.NoError(t, err)
	assert.Equal(t, []string{"modelserver-0", "10.0.0.7"}, []string{cfg.PodName, cfg.PodIP})
	cfg, err = parse(t, "--pod-name=other")
	require.NoError(t, err)
	assert.Equal(t, "other", cfg.PodName)
}

func TestEveryFlagReachesItsField(t *testing.T) {
	cfg, err := parse(t, "--port=1", "--address-file=/a", "--pod-name=p", "--pod-ip=::1", "--model=a,b", "--lora-modules=x=/path,y", "--seed=7", "--output-tokens=5-9",
		"--startup-delay=1s", "--drain-delay=2s", "--shutdown-timeout=3", "--allow-fault-header", "--max-model-len=64", "--max-num-seqs=2",
		"--max-num-batched-tokens=32", "--num-gpu-blocks=10", "--block-size=8", "--max-loras=3", "--step-base=4ms", "--step-per-seq=5us",
		"--prefill-per-token=6us", "--speed=0.25", "--log-level=debug", "--log-format=console", "--step-per-context-token=7ns",
		"--prefill-per-megapair=8us", "--step-noise=0.5", "--cuda-graphs", "--tokenizer=cl100k_base", "--metrics-names=old", "--metrics-time=9ms",
		"--stale-gauges", "--keep-alive-timeout=10s", "--http2=false", "--ready-path=false", "--enable-prompt-tokens-details=false",
		"--coalesce-events", "--stream-interval=11", "--fault=429,delay=50ms,rate=0.1", "--role-first", "--sse-keep-alive-interval=1s")
	require.NoError(t, err)
	want := Default()
	want.Port, want.PodName, want.PodIP, want.Models, want.LoRAModules, want.Seed = 1, "p", "::1", []string{"a", "b"}, []string{"x=/path", "y"}, 7
	want.AddressFile = "/a"
	want.Output = OutputLengths{tokens.Lengths{Min: 5, Max: 9}}
	want.StartupDelay, want.DrainDelay, want.ShutdownTimeout, want.AllowFaultHeader = time.Second, 2*time.Second, 3*time.Second, true
	e := &want.Engine
	e.MaxModelLen, e.MaxNumSeqs, e.MaxNumBatchedTokens, e.NumBlocks, e.BlockSize, e.MaxLoRAs = 64, 2, 32, 10, 8, 3
	e.Law = steptime.Law{
		Base: 4 * time.Millisecond, PerSeq: 5 * time.Microsecond, PerToken: 6 * time.Microsecond, PerContext: 7, PerMegaPair: 8 * time.Microsecond,
		Noise: 0.5, Graphs: true,
	}
	e.Speed, e.Seed, e.StaleGauges = 0.25, 7, true
	want.Tokenizer, want.Names, want.KeepAlive, want.HTTP2 = TokenizerBPE, metrics.OldNames, 10*time.Second, false
	want.Habits = api.Habits{
		CoalesceEvents: true, StreamInterval: 11, RoleFirst: true, KeepAliveInterval: time.Second, PageTime: 9 * time.Millisecond,
	}
	want.Fault = faults.Fault{Name: "429", Delay: 50 * time.Millisecond, Rate: 0.1, Tokens: 1}
	want.Logging.Level, want.Logging.Format = "debug", "console"
	assert.Equal(t, want, cfg)
	assert.Equal(t, []string{"x", "y"}, cfg.Adapters())
}

func TestProfiles(t *testing.T) {
	cfg, err := parse(t, "--profile=realistic")
	require.NoError(t, err)
	assert.Equal(t, steptime.Realistic(), cfg.Engine.Law)
	assert.True(t, cfg.Engine.StaleGauges)
	assert.Equal(t, api.Habits{CoalesceEvents: true, StreamInterval: 1, PageTime: 10 * time.Millisecond}, cfg.Habits)
	assert.Equal(t, []time.Duration{5 * time.Second, 0, 0}, []time.Duration{cfg.KeepAlive, cfg.DrainDelay, cfg.ShutdownTimeout})
	assert.False(t, cfg.HTTP2)
	tokenizer, err := cfg.NewTokenizer()
	require.NoError(t, err)
	assert.IsType(t, &tokens.BPE{}, tokenizer)

	cfg, err = parse(t, "--step-noise=0", "--profile=realistic", "--shutdown-timeout=1m")
	require.NoError(t, err)
	assert.Zero(t, cfg.Engine.Law.Noise, "the profile does not change explicit flags")
	assert.Equal(t, time.Minute, cfg.ShutdownTimeout)

	cfg, err = parse(t, "--profile=plain")
	require.NoError(t, err)
	assert.Equal(t, steptime.Linear(), cfg.Engine.Law)
	tokenizer, err = cfg.NewTokenizer()
	require.NoError(t, err)
	assert.IsType(t, tokens.FourBytes{}, tokenizer)
}

func TestWrongFlags(t *testing.T) {
	tests := []struct {
		name, give, want string
	}{
		{"port", "--port=70000", "port must be between 0 and 65535, got 70000"},
		{"address", "--pod-ip=pod-a", "pod-ip must be an IP address"},
		{"no model", "--model=", "model must have a name"},
		{"two models with one name", "--model=a,a", `distinct names, got "a"`},
		{"adapter named like the model", "--lora-modules=meta-llama/Llama-3.1-8B-Instruct", "distinct names"},
		{"negative delay", "--drain-delay=-1s", "must not be negative"},
		{"negative timeout", "--shutdown-timeout=-1", "must not be negative"},
		{"timeout of another unit", "--shutdown-timeout=5x", "is not a number of seconds"},
		{"profile", "--profile=real", "is not plain or realistic"},
		{"names", "--metrics-names=older", "is not new, old or both"},
		{"tokenizer", "--tokenizer=llama", "tokenizer must be four-bytes or cl100k_base"},
		{"no tokens in an event", "--stream-interval=0", "stream-interval must be at least 1"},
		{"fault", "--fault=explode", "is no fault: give 400 to 599, error-sglang, "},
		{"negative interval", "--sse-keep-alive-interval=-1s", "must not be negative"},
		{"length", "--output-tokens=9-5", "is not N or MIN-MAX"},
		{"engine", "--speed=0", "speed must be positive"},
		{"logging", "--log-level=loud", "--log-level"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse(t, tt.give)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestREADMENamesEveryFlagAndFault(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	cfg := Default()
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	cfg.AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) { assert.Contains(t, string(readme), "`--"+f.Name+"`") })
	for _, f := range faults.Names {
		assert.Contains(t, string(readme), "| `"+f.Name+"` | "+f.Meaning+" |\n")
	}
}
