package config

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/extproc"
)

func TestParse(t *testing.T) {
	t.Setenv("NAMESPACE", "")
	c, err := Parse([]string{"--pool-name=pool"}, io.Discard)
	require.NoError(t, err)
	want := Default()
	want.Pool.Name.Name = "pool"
	assert.Equal(t, want, c)
	assert.Equal(t, "default/pool", c.Pool.Name.String())

	t.Setenv("NAMESPACE", "models")
	c, err = Parse([]string{
		"--pool-name=pool", "--grpc-port=1", "--grpc-health-port=2", "--secure-serving=false", "--body-mode=buffered", "--max-request-body=64MiB",
		"--report-endpoint", "--disable-endpoint-subset-filter", "--refresh-metrics-interval=1s", "--refresh-metrics-timeout=3s",
		"--metrics-staleness-threshold=5s", "--lease-timeout=2m", "--drain-delay=0", "--drain-timeout=10m", "--log-level=debug",
		"--metrics-bind-address=:1234", "--kubeconfig=/k",
		"--enable-grpc-stream-metrics", "--legacy-metrics", "--tracing=false", "--log-requests", "--debug-picks=64",
	}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "models", c.Pool.Name.Namespace)
	assert.Equal(t, GRPC{Port: 1, HealthPort: 2}, c.GRPC)
	assert.Equal(t, ExtProc{BodyMode: extproc.Buffered, MaxRequestBody: 64 << 20, ReportEndpoint: true, IgnoreSubset: true}, c.ExtProc)
	assert.Equal(t, time.Second, c.Scraping.Interval)
	assert.Equal(t, Drain{Timeout: 10 * time.Minute}, c.Drain)
	assert.Equal(t, Telemetry{StreamMetrics: true, LegacyMetrics: true, LogRequests: true, DebugPicks: 64}, c.Telemetry)
	assert.Equal(t, "debug", c.Logging.Level)
	assert.Equal(t, ":1234", c.HTTP.MetricsAddress)
	assert.Equal(t, "/k", c.Kube.Kubeconfig)

	c, err = Parse([]string{"--pool-name=pool", "--pool-namespace=other"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "other", c.Pool.Name.Namespace)
}

func TestParseSaysWhatIsWrongAndHowToMendIt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "no pool", want: "--pool-name is missing: give the name of the InferencePool to serve"},
		{name: "no namespace", give: []string{"--pool-name=p", "--pool-namespace="}, want: "--pool-namespace is empty: give the namespace of the InferencePool, or leave the flag out"},
		{name: "old group", give: []string{"--pool-name=p", "--pool-group=inference.networking.x-k8s.io"}, want: `--pool-group "inference.networking.x-k8s.io" is not served: only inference.networking.k8s.io is, leave the flag out`},
		{name: "port", give: []string{"--pool-name=p", "--grpc-port=70000"}, want: "--grpc-port 70000 is not a port: give one from 1 to 65535"},
		{name: "health port", give: []string{"--pool-name=p", "--grpc-health-port=-1"}, want: "--grpc-health-port -1 is not a port: give one from 1 to 65535"},
		{name: "one port twice", give: []string{"--pool-name=p", "--grpc-port=9003"}, want: "--grpc-port and --grpc-health-port are both 9003: give each its own"},
		{name: "certificate without TLS", give: []string{"--pool-name=p", "--secure-serving=false", "--cert-path=/c"}, want: "--cert-path has no use with --secure-serving=false: leave one of them out"},
		{name: "body mode", give: []string{"--pool-name=p", "--body-mode=fast"}, want: `invalid argument "fast" for "--body-mode" flag: "fast" is not one of full-duplex, streamed, buffered, none: see --help`},
		{name: "small body", give: []string{"--pool-name=p", "--max-request-body=1"}, want: "--max-request-body 1 is out of range: give 1Ki to 1Gi"},
		{name: "large body", give: []string{"--pool-name=p", "--max-request-body=2Gi"}, want: "--max-request-body 2Gi is out of range: give 1Ki to 1Gi"},
		{name: "interval", give: []string{"--pool-name=p", "--refresh-metrics-interval=1ms"}, want: "--refresh-metrics-interval 1ms is too short: give at least 10ms"},
		{name: "timeout", give: []string{"--pool-name=p", "--refresh-metrics-timeout=0"}, want: "--refresh-metrics-timeout 0s is not a time: give 1s, for instance"},
		{name: "staleness", give: []string{"--pool-name=p", "--refresh-metrics-interval=2s"}, want: "--metrics-staleness-threshold 2s is too short: give at least twice --refresh-metrics-interval, which is 2s"},
		{name: "lease", give: []string{"--pool-name=p", "--lease-timeout=1ms"}, want: "--lease-timeout 1ms is too short: give at least --refresh-metrics-interval, which is 200ms"},
		{name: "delay", give: []string{"--pool-name=p", "--drain-delay=-1s"}, want: "--drain-delay -1s is negative: give 0 to leave it out"},
		{name: "drain", give: []string{"--pool-name=p", "--drain-timeout=-1s"}, want: "--drain-timeout -1s is negative: give 0 to end requests at once"},
		{name: "picks", give: []string{"--pool-name=p", "--debug-picks=-1"}, want: "--debug-picks -1 is out of range: give 0 to 10000"},
		{name: "unknown flag", give: []string{"--pool"}, want: "unknown flag: --pool: see --help"},
		{name: "argument", give: []string{"--pool-name=p", "serve"}, want: `unexpected argument "serve": all settings are flags, see --help`},
		{name: "log level", give: []string{"--pool-name=p", "--log-level=loud"}, want: `--log-level "loud" is not one of debug, info, warn, error`},
		{name: "two at once", give: []string{"--grpc-port=0", "--drain-delay=-1s"}, want: "--pool-name is missing: give the name of the InferencePool to serve\n--drain-delay -1s is negative: give 0 to leave it out"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.give, io.Discard)
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestParseOfOtherCommands(t *testing.T) {
	t.Parallel()
	for command, args := range map[Command][]string{CommandVersion: {"--version"}, CommandGraph: {"graph"}} {
		c, err := Parse(args, io.Discard)
		require.NoError(t, err)
		assert.Equal(t, command, c.Command)
	}
	var help bytes.Buffer
	_, err := Parse([]string{"--help"}, &help)
	require.ErrorIs(t, err, pflag.ErrHelp)
	assert.Contains(t, help.String(), "--pool-name")
}

func TestEveryFlagSaysWhatItIs(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	Default().AddFlags(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		assert.True(t, strings.HasSuffix(f.Usage, "."), "%s: %s", f.Name, f.Usage)
	})
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"32Mi": 32 << 20, "32MiB": 32 << 20, "1048576": 1 << 20, "500k": 500_000} {
		var s Size
		require.NoError(t, s.Set(text))
		assert.Equal(t, want, s, text)
	}
	s := Size(32 << 20)
	assert.Equal(t, "32Mi", s.String())
	assert.Equal(t, "size", s.Type())
	require.ErrorContains(t, s.Set("many"), `"many" is not a size such as 32Mi`)
}
