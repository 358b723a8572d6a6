package config

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/service"
	"fairlead.dev/services/endpoint-picker/internal/listener/extproc"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// parseFlags returns the configuration of a command line that has only flags. Help goes to w; after help the error is pflag.ErrHelp.
func parseFlags(args []string, w io.Writer) (*Config, error) {
	c, fs := Default(), pflag.NewFlagSet("endpoint-picker", pflag.ContinueOnError)
	fs.SetOutput(w)
	c.AddFlags(fs)
	if err := fs.Parse(DoubleDashes(fs, args)); errors.Is(err, pflag.ErrHelp) {
		return nil, err
	} else if err != nil {
		return nil, service.FlagError(fs, err)
	}
	return c, c.Complete(fs)
}

func TestParse(t *testing.T) {
	t.Setenv("NAMESPACE", "")
	c, err := parseFlags([]string{"--pool-name=pool"}, io.Discard)
	require.NoError(t, err)
	want := Default()
	want.Pool.Name.Name = "pool"
	assert.Equal(t, want, c)
	assert.Equal(t, "default/pool", c.Pool.Name.String())

	t.Setenv("NAMESPACE", "models")
	c, err = parseFlags([]string{
		"--pool-name=pool", "--grpc-port=1", "--grpc-health-port=2", "--secure-serving=false", "--body-mode=buffered", "--max-request-body=64MiB",
		"--max-buffered-bytes=1Gi", "--max-streams=7", "--request-body-timeout=5s", "--stream-idle-timeout=2h", "--early-close",
		"--eject-after=3", "--ejection-time=2s", "--ejection-time-max=1m", "--emit-endpoint-scores", "--explain", "--report-endpoint", "--disable-endpoint-subset-filter", "--refresh-metrics-interval=1s",
		"--refresh-metrics-idle-interval=4s", "--refresh-metrics-budget=50", "--refresh-metrics-timeout=3s", "--probe-tokenizers=false",
		"--metrics-staleness-threshold=5s", "--lease-timeout=2m", "--drain-delay=0", "--drain-timeout=10m", "--log-level=debug",
		"--metrics-bind-address=:1234", "--kubeconfig=/k", "--prefix-index-max-bytes=100Mi",
		"--enable-grpc-stream-metrics", "--legacy-metrics", "--tracing=false", "--log-requests", "--debug-picks=64",
		"--record-max-bytes=8Mi", "--address-file=/a", "--state-file=/s",
	}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, "models", c.Pool.Name.Namespace)
	assert.Equal(t, GRPC{Port: 1, HealthPort: 2}, c.GRPC)
	assert.Equal(t, ExtProc{
		BodyMode: extproc.Buffered, MaxRequestBody: 64 << 20, MaxBuffered: 1 << 30, MaxStreams: 7, BodyTimeout: 5 * time.Second, IdleTimeout: 2 * time.Hour,
		ReportEndpoint: true, IgnoreSubset: true, LeaveEarly: true, EmitScores: true, Explain: true,
	}, c.ExtProc)
	assert.Equal(t, pool.DetectorOptions{Failures: 3, BaseEjection: 2 * time.Second, MaxEjection: time.Minute}, c.Outliers)
	assert.Equal(t, modelserver.Options{
		Interval: modelserver.Interval{Fastest: time.Second, Slowest: 4 * time.Second}, Budget: 50, Timeout: 3 * time.Second,
		StaleAfter: 5 * time.Second,
	}, c.Scraping)
	assert.Equal(t, Leases{Timeout: 2 * time.Minute}, c.Leases)
	assert.Equal(t, Prefixes{MaxBytes: 100 << 20, StateFile: "/s"}, c.Prefixes)
	assert.Equal(t, Drain{Timeout: 10 * time.Minute}, c.Drain)
	assert.Equal(t, Telemetry{StreamMetrics: true, LegacyMetrics: true, LogRequests: true, DebugPicks: 64}, c.Telemetry)
	assert.Equal(t, Recording{MaxBytes: 8 << 20}, c.Recording)
	assert.Equal(t, "debug", c.Logging.Level)
	assert.Equal(t, ":1234", c.HTTP.MetricsAddress)
	assert.Equal(t, "/k", c.Kube.Kubeconfig)
	assert.Equal(t, "/a", c.AddressFile)

	c, err = parseFlags([]string{"--pool-name=pool", "--pool-namespace=other"}, io.Discard)
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
		{name: "no pool", want: "--pool-name is missing: give the name of the InferencePool to serve, or else --servers, --endpoint-selector or --endpoints-file"},
		{name: "no namespace", give: []string{"--pool-name=p", "--pool-namespace="}, want: "--pool-namespace is empty: give the namespace of the InferencePool or the pods, or leave the flag out"},
		{name: "no pools at most", give: []string{"--picker-service=p", "--max-pools=0"}, want: "--max-pools is 0: give a number from 1 to 1000"},
		{name: "too many pools", give: []string{"--picker-service=p", "--max-pools=1001"}, want: "--max-pools is 1001: give a number from 1 to 1000"},
		{name: "maximum of named pools", give: []string{"--pool=p", "--max-pools=2"}, want: "--max-pools has no effect with --pool: leave it out"},
		{name: "old group", give: []string{"--pool-name=p", "--pool-group=inference.networking.x-k8s.io"}, want: `--pool-group "inference.networking.x-k8s.io" is not supported: give inference.networking.k8s.io, or leave the flag out`},
		{name: "port", give: []string{"--pool-name=p", "--grpc-port=70000"}, want: "--grpc-port 70000 is not a port: give one from 1 to 65535"},
		{name: "health port", give: []string{"--pool-name=p", "--grpc-health-port=-1"}, want: "--grpc-health-port -1 is not a port: give one from 1 to 65535"},
		{name: "one port twice", give: []string{"--pool-name=p", "--grpc-port=9003"}, want: "--grpc-port and --grpc-health-port are both 9003: give each its own"},
		{name: "certificate without TLS", give: []string{"--pool-name=p", "--secure-serving=false", "--cert-path=/c"}, want: "--cert-path has no effect with --secure-serving=false: leave one of them out"},
		{name: "clients without TLS", give: []string{"--pool-name=p", "--secure-serving=false", "--client-ca-file=/c"}, want: "--client-ca-file has no effect with --secure-serving=false: leave one of them out"},
		{name: "clients of any authority", give: []string{"--pool-name=p", "--client-name=c"}, want: "--client-name has no effect without --client-ca-file: give both"},
		{name: "clients without a name", give: []string{"--pool-name=p", "--client-ca-file=/c", "--client-name=a,,b"}, want: "--client-name is empty: give a name, or leave the flag out"},
		{name: "body mode", give: []string{"--pool-name=p", "--body-mode=fast"}, want: `--body-mode: "fast" is not one of full-duplex, streamed, buffered, none`},
		{name: "small body", give: []string{"--pool-name=p", "--max-request-body=1"}, want: "--max-request-body 1 is out of range: give 1Ki to 1Gi"},
		{name: "large body", give: []string{"--pool-name=p", "--max-request-body=2Gi"}, want: "--max-request-body 2Gi is out of range: give 1Ki to 1Gi"},
		{name: "interval", give: []string{"--pool-name=p", "--refresh-metrics-interval=1ms"}, want: "--refresh-metrics-interval 1ms is too short: give at least 10ms"},
		{name: "timeout", give: []string{"--pool-name=p", "--refresh-metrics-timeout=0"}, want: "--refresh-metrics-timeout 0s is not positive: give a duration such as 1s"},
		{name: "staleness", give: []string{"--pool-name=p", "--refresh-metrics-interval=2s", "--refresh-metrics-idle-interval=2s"}, want: "--metrics-staleness-threshold 2s is too short: give at least twice --refresh-metrics-interval, which is 2s"},
		{name: "lease", give: []string{"--pool-name=p", "--lease-timeout=1ms"}, want: "--lease-timeout 1ms is too short: give at least --refresh-metrics-idle-interval, which is 1s"},
		{name: "idle interval", give: []string{"--pool-name=p", "--refresh-metrics-interval=900ms", "--refresh-metrics-idle-interval=500ms"}, want: "--refresh-metrics-idle-interval 500ms is too short: give at least --refresh-metrics-interval, which is 900ms"},
		{name: "buffered bytes", give: []string{"--pool-name=p", "--max-buffered-bytes=63Mi"}, want: "--max-buffered-bytes 63Mi is too small: give at least twice --max-request-body, which is 32Mi"},
		{name: "idle streams", give: []string{"--pool-name=p", "--stream-idle-timeout=1ms"}, want: "--stream-idle-timeout 1ms is too short: give at least 1s, or 0 for no limit"},
		{name: "budget", give: []string{"--pool-name=p", "--refresh-metrics-budget=NaN"}, want: "--refresh-metrics-budget NaN is too small: give at least 1"},
		{name: "prefix index", give: []string{"--pool-name=p", "--prefix-index-max-bytes=100Ki"}, want: "--prefix-index-max-bytes 100Ki is too small: give at least 1Mi"},
		{name: "delay", give: []string{"--pool-name=p", "--drain-delay=-1s"}, want: "--drain-delay -1s is negative: give 0 for no delay"},
		{name: "drain", give: []string{"--pool-name=p", "--drain-timeout=-1s"}, want: "--drain-timeout -1s is negative: give 0 to cut open requests at once"},
		{name: "decision address", give: []string{"--pool-name=p", "--decision-bind-address=9008"}, want: `--decision-bind-address "9008" is not an address: give host:port`},
		{name: "decision port", give: []string{"--pool-name=p", "--decision-bind-address=:http"}, want: `--decision-bind-address ":http" has no valid port: give one from 1 to 65535`},
		{name: "decision TLS alone", give: []string{"--pool-name=p", "--decision-tls"}, want: "--decision-tls has no effect without --decision-bind-address: give both"},
		{name: "decision TLS without a certificate", give: []string{"--pool-name=p", "--decision-bind-address=:1", "--decision-tls", "--secure-serving=false"}, want: "--decision-tls needs --secure-serving, whose certificate it uses: give both"},
		{name: "decision beside client certificates", give: []string{"--pool-name=p", "--decision-bind-address=:1", "--client-ca-file=/ca"}, want: "--client-ca-file is for ext_proc, and --decision-bind-address lets others in without a certificate: add --decision-tls"},
		{name: "decision timeout", give: []string{"--pool-name=p", "--decision-bind-address=:1", "--decision-timeout=1ms"}, want: "--decision-timeout 1ms is too short: give at least 1s"},
		{name: "picks", give: []string{"--pool-name=p", "--debug-picks=-1"}, want: "--debug-picks -1 is out of range: give 0 to 10000"},
		{name: "small recording", give: []string{"--pool-name=p", "--record-max-bytes=1Mi"}, want: "--record-max-bytes 1Mi is too small: give at least 4Mi"},
		{name: "recording without answers", give: []string{"--pool-name=p", "--record-file=/r", "--early-close"}, want: "--record-file has no effect with --early-close, which hides all answers: leave one of them out"},
		{name: "proxy address", give: []string{"--pool-name=p", "--proxy-bind-address=bad"}, want: `--proxy-bind-address "bad" is not an address: give host:port`},
		{name: "proxy port", give: []string{"--pool-name=p", "--proxy-bind-address=:70000"}, want: `--proxy-bind-address ":70000" has no valid port: give one from 1 to 65535`},
		{name: "proxy host", give: []string{"--pool-name=p", "--proxy-bind-address=fd00::1:80"}, want: `--proxy-bind-address "fd00::1:80" is not an address: give host:port`},
		{name: "TLS without a proxy", give: []string{"--pool-name=p", "--proxy-tls"}, want: "--proxy-tls has no effect without --proxy-bind-address: give both"},
		{name: "TLS without a certificate", give: []string{"--pool-name=p", "--proxy-bind-address=:80", "--proxy-tls", "--secure-serving=false"}, want: "--proxy-tls needs the certificate that --secure-serving=false disables: leave one of them out"},
		{name: "connections to a server", give: []string{"--pool-name=p", "--proxy-max-connections-per-server=-1"}, want: "--proxy-max-connections-per-server -1 is negative: give 0 for no limit"},
		{name: "no attempt", give: []string{"--pool-name=p", "--proxy-max-attempts=0"}, want: "--proxy-max-attempts 0 is less than 1: give 1 to send a request to the picked server only"},
		{name: "forwarded headers", give: []string{"--pool-name=p", "--proxy-forwarded-headers=trust"}, want: `--proxy-forwarded-headers: "trust" is not one of replace, append, off`},
		{name: "unknown flag", give: []string{"--pools"}, want: "unknown flag: --pools: did you mean --pool?"},
		{name: "log level", give: []string{"--pool-name=p", "--log-level=loud"}, want: `--log-level "loud" is not one of debug, info, warn, error`},
		{name: "two configurations", give: []string{"--pool-name=p", "--config-file=/c", "--config-map=c"}, want: "only one of --config-file, --config-text and --config-map can be given: leave the others out"},
		{name: "key without ConfigMap", give: []string{"--pool-name=p", "--config-map-key=k"}, want: "--config-map-key has no effect without --config-map: leave it out"},
		{name: "ConfigMap without name", give: []string{"--pool-name=p", "--config-map=ns/"}, want: `--config-map: "ns/" is not namespace/name`},
		{name: "ConfigMap of too many parts", give: []string{"--pool-name=p", "--config-map=a/b/c"}, want: `--config-map: "a/b/c" is not namespace/name`},
		{name: "two at once", give: []string{"--grpc-port=0", "--drain-delay=-1s"}, want: "--pool-name is missing: give the name of the InferencePool to serve, or else --servers, --endpoint-selector or --endpoints-file\n--drain-delay -1s is negative: give 0 for no delay"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFlags(tt.give, io.Discard)
			require.EqualError(t, err, tt.want)
		})
	}
}

func TestFitMemory(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		limit          int64
		buffered, body Size
		lowered        bool
	}{
		{name: "no limit", limit: math.MaxInt64, buffered: 256 << 20, body: 32 << 20},
		{name: "just enough", limit: 512 << 20, buffered: 256 << 20, body: 32 << 20},
		{name: "less for all", limit: 500 << 20, buffered: 250 << 20, body: 32 << 20, lowered: true},
		{name: "less for each", limit: 100 << 20, buffered: 50 << 20, body: 25 << 20, lowered: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := Default().ExtProc
			assert.Equal(t, tt.lowered, e.FitMemory(tt.limit))
			assert.Equal(t, []Size{tt.buffered, tt.body}, []Size{e.MaxBuffered, e.MaxRequestBody})
		})
	}
}

func TestParseConfigMap(t *testing.T) {
	t.Parallel()
	for give, want := range map[string]string{"ns/c": "ns/c", "c": "c"} {
		c, err := parseFlags([]string{"--pool-name=p", "--config-map=" + give, "--config-map-key=k"}, io.Discard)
		require.NoError(t, err)
		assert.Equal(t, want, c.Plugins.Map.String())
		assert.Equal(t, "c", c.Plugins.Map.Name)
		assert.Equal(t, "k", c.Plugins.MapKey)
	}
}

func TestParseHelp(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	_, err := parseFlags([]string{"--help"}, &help)
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

// TestPageHasForeignFlags searches the page for the flags of other pickers that have no effect, or that --help does not list.
func TestPageHasForeignFlags(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/services/endpoint-picker-compatibility.md")
	require.NoError(t, err)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	Default().AddFlags(fs)
	found := 0
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || strings.HasPrefix(f.Usage, "Accepted without effect") {
			found++
			assert.Contains(t, string(page), "`--"+f.Name+"`")
		}
	})
	assert.Greater(t, found, 10)
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

func TestProxyPort(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]int{"": 0, ":8080": 8080, "10.0.0.1:80": 80, "[::1]:1": 1, "nonsense": 0, ":http": 0, ":70000": 0} {
		assert.Equal(t, want, (&Proxy{Address: address}).ListenPort(), address)
	}
}
