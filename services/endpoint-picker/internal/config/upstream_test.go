package config

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

const pluginConfig = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"

// parseCharts parses what a chart gives. Flags of other parts of the picker, which the charts give too, are stood in for
// where these parts are not there.
func parseCharts(args []string) (*Config, error) {
	c := Default()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.AddFlags(fs)
	for _, name := range []string{"config-file", "config-text"} {
		if fs.Lookup(name) == nil {
			fs.String(name, "", "")
		}
	}
	if fs.Lookup("tracing") == nil {
		fs.Bool("tracing", true, "")
	}
	if err := fs.Parse(DoubleDashes(fs, args)); err != nil {
		return nil, err
	}
	return c, c.applyUpstreamFlags(fs)
}

func names(unused []UnusedFlag) []string {
	var all []string
	for _, f := range unused {
		all = append(all, f.Name)
	}
	return all
}

// settings are what these flags are about.
func settings(c *Config) []any {
	return []any{c.Pool, c.GRPC, c.HTTP, c.Logging, c.TLS, c.Metrics, c.Messages, c.Drain, c.Scraping, c.MetricsSource, c.DefaultEngine}
}

func TestArgumentsOfPublicCharts(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		give       []string
		want       func(c *Config)
		wantUnused []string
	}{
		{
			name: "llm-d router, one replica, as its chart is",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json",
				"--config-file", "/config/default-plugins.yaml", "--grpc-health-port", "9003", "--tracing=false",
			},
			want: func(*Config) {},
		},
		{
			name: "llm-d router, three replicas, flags and open metrics",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json",
				"--config-file", "/config/default-plugins.yaml", "--ha-enable-leader-election", "--grpc-health-port", "9103",
				"--secure-serving=false", "--v=4", "--tracing=true", "--metrics-endpoint-auth=false",
			},
			want: func(c *Config) {
				c.GRPC.HealthPort, c.GRPC.Secure, c.Metrics.Auth, c.Logging.Level = 9103, false, false, "debug"
			},
			wantUnused: []string{"--ha-enable-leader-election"},
		},
		{
			name: "llm-d router, the manifests of its developers",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--v", "4", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003",
				"--config-file", "/etc/epp/epp-config.yaml", "--allow-experimental-plugins=true", "--metrics-endpoint-auth=true",
				"--ha-enable-leader-election=false",
			},
			want:       func(c *Config) { c.Logging.Level = "debug" },
			wantUnused: []string{"--ha-enable-leader-election", "--allow-experimental-plugins"},
		},
		{
			name: "a bench of the llm-d router",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace=llm-d", "--config-file", "/epp-config.yaml", "--grpc-port", "9012", "--grpc-health-port", "9013",
				"--metrics-port", "9014", "--secure-serving=false", "--health-checking=false", "--tracing=false", "--metrics-endpoint-auth=false",
				"--grpc-max-recv-msg-size", "10MiB", "--grpc-max-send-msg-size", "25MB",
			},
			want: func(c *Config) {
				c.GRPC.Port, c.GRPC.HealthPort, c.GRPC.Secure = 9012, 9013, false
				c.HTTP.MetricsAddress, c.Metrics.Auth = ":9014", false
				c.Messages = Messages{MaxReceive: 10 << 20, MaxSend: 25_000_000}
			},
			wantUnused: []string{"--health-checking"},
		},
		{
			name: "KServe, in plaintext",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--zap-encoder", "json", "--grpc-port", "9002", "--grpc-health-port", "9003",
				"--kv-cache-usage-percentage-metric", "vllm:kv_cache_usage_perc",
			},
			want:       func(*Config) {},
			wantUnused: []string{"--kv-cache-usage-percentage-metric"},
		},
		{
			name: "KServe, with certificates",
			give: []string{
				"-v=4", "--pool-name", "qwen", "--pool-namespace", "llm-d", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json",
				"--grpc-port", "9002", "--grpc-health-port", "9003", "--secure-serving", "--cert-path", "/var/run/kserve/tls", "--config-text", pluginConfig,
			},
			want: func(c *Config) { c.GRPC.CertPath, c.Logging.Level = "/var/run/kserve/tls", "debug" },
		},
		{
			name: "Gateway API Inference Extension, as its chart is",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--pool-group", "inference.networking.k8s.io", "--zap-encoder", "json",
				"--config-file", "/config/default-plugins.yaml", "--v", "1", "--tracing=false",
			},
			want: func(*Config) {},
		},
		{
			name: "Gateway API Inference Extension 0.3, as its chart is",
			give: []string{
				"-poolName", "qwen", "-poolNamespace", "llm-d", "-v", "3", "-grpcPort", "9002", "-grpcHealthPort", "9003", "-metricsPort", "9091",
			},
			want: func(c *Config) { c.HTTP.MetricsAddress = ":9091" },
		},
		{
			name: "Gateway API Inference Extension 0.5, as its chart is for Triton",
			give: []string{
				"-poolName", "qwen", "-poolNamespace", "llm-d", "--v", "4", "--grpcPort", "9102", "-grpcHealthPort", "9103", "-metricsPort", "9090",
				"-configFile", "config/default-plugins.yaml", "--enablePprof=true", "--modelServerMetricsPath=/metrics", "--modelServerMetricsScheme=https",
				"--modelServerMetricsHttpsInsecureSkipVerify=true", "-totalQueuedRequestsMetric", "nv_trt_llm_request_metrics{request_type=waiting}",
				"-kvCacheUsagePercentageMetric", "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}", "-loraInfoMetric", "",
			},
			want: func(c *Config) {
				c.Logging.Level, c.GRPC.Port, c.GRPC.HealthPort, c.HTTP.EnablePprof = "debug", 9102, 9103, true
				c.MetricsSource.Scheme, c.DefaultEngine = "https", "triton-tensorrt-llm"
			},
		},
		{
			name: "Gateway API Inference Extension 1.0, with single dashes, for Triton",
			give: []string{
				"-pool-name", "qwen", "-pool-namespace=llm-d", "--total-queued-requests-metric", "nv_trt_llm_request_metrics{request_type=waiting}",
				"--kv-cache-usage-percentage-metric", "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}", "--lora-info-metric", "",
			},
			want: func(c *Config) { c.DefaultEngine = "triton-tensorrt-llm" },
		},
		{
			name: "Gateway API Inference Extension 1.5, for SGLang",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", `--total-queued-requests-metric="sglang:num_queue_reqs"`, `--total-running-requests-metric="sglang:num_running_reqs"`,
				`--kv-cache-usage-percentage-metric="sglang:token_usage"`, `--cache-info-metric="sglang:cache_config_info"`,
			},
			want: func(c *Config) { c.DefaultEngine = "sglang" },
		},
		{
			name: "Gateway API Inference Extension 1.5, for trtllm-serve",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", `--total-queued-requests-metric="trtllm_num_requests_waiting"`, `--total-running-requests-metric="trtllm_num_requests_running"`,
				`--kv-cache-usage-percentage-metric="trtllm_kv_cache_utilization"`, `--cache-info-metric="trtllm_cache_config_info"`, "--lora-info-metric", "",
			},
			want: func(c *Config) { c.DefaultEngine = "trtllm-serve" },
		},
		{
			name: "Gateway API Inference Extension, without LoRA",
			give: []string{
				"--pool-name", "qwen", "--pool-namespace", "llm-d", "--lora-info-metric", "", "--kv-cache-usage-percentage-metric=vllm:gpu_cache_usage_perc",
			},
			want:       func(*Config) {},
			wantUnused: []string{"--kv-cache-usage-percentage-metric", "--lora-info-metric"},
		},
		{
			name: "its lightweight picker",
			give: []string{
				"--pool-name=qwen", "--pool-namespace=llm-d", "--pool-group=inference.networking.k8s.io", "--grpc-port=9002", "--grpc-health-port=9003",
				"--metrics-port=9090", "--health-checking", "--secure-serving=true",
			},
			want:       func(*Config) {},
			wantUnused: []string{"--health-checking"},
		},
		{
			name: "all that the llm-d router has for TLS, metrics and logs",
			give: []string{
				"--pool-name=qwen", "--pool-namespace=llm-d", "--cert-path=/tls", "--enable-cert-reload", "--tls-min-version=VersionTLS13",
				"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "--metrics-cert-dir=/metrics-tls",
				"--metrics-client-ca-file=/ca.crt", "--enable-pprof=true", "--drain-timeout=30s", "--zap-devel=false", "--zap-log-level=error",
				"--zap-stacktrace-level=panic", "--zap-time-encoding=rfc3339", "--refresh-prometheus-metrics-interval=5s", "--enable-grpc-stream-metrics",
			},
			want: func(c *Config) {
				c.GRPC.CertPath, c.HTTP.EnablePprof, c.Logging.Level, c.Drain.Timeout = "/tls", true, "error", 30*time.Second
				c.TLS.MinVersion = "VersionTLS13"
				c.TLS.CipherSuites = []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"}
				c.Metrics = MetricsEndpoint{Auth: true, CertDir: "/metrics-tls", ClientCAFile: "/ca.crt"}
			},
			wantUnused: []string{
				"--refresh-prometheus-metrics-interval", "--zap-stacktrace-level", "--zap-time-encoding",
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := parseCharts(tt.give)
			require.NoError(t, err)
			require.NoError(t, c.Validate())
			want := Default()
			want.Pool.Name.Namespace, want.Pool.Name.Name = "llm-d", "qwen"
			tt.want(want)
			assert.Equal(t, tt.wantUnused, names(c.Unused))
			assert.Equal(t, settings(want), settings(c))
		})
	}
}

func TestLoggingByUpstreamsFlags(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		give       []string
		wantLevel  string
		wantFormat string
	}{
		{name: "verbosity of upstream's default", give: []string{"-v=2"}, wantLevel: "info", wantFormat: "json"},
		{name: "verbose is not debug", give: []string{"-v", "3"}, wantLevel: "info", wantFormat: "json"},
		{name: "debug", give: []string{"--v=4"}, wantLevel: "debug", wantFormat: "json"},
		{name: "trace", give: []string{"--v", "5"}, wantLevel: "debug", wantFormat: "json"},
		{name: "negative", give: []string{"--v=-1"}, wantLevel: "info", wantFormat: "json"},
		{name: "a level by name goes first", give: []string{"--zap-log-level=error", "-v=5"}, wantLevel: "error", wantFormat: "json"},
		{name: "a level by number", give: []string{"--zap-log-level=5"}, wantLevel: "debug", wantFormat: "json"},
		{name: "a level that is not ours", give: []string{"--zap-log-level=Panic"}, wantLevel: "error", wantFormat: "json"},
		{name: "ours go first of all", give: []string{"--log-level=warn", "--log-format=console", "--zap-log-level=debug", "-v=5", "--zap-encoder=json"}, wantLevel: "warn", wantFormat: "console"},
		{name: "developers", give: []string{"--zap-devel"}, wantLevel: "info", wantFormat: "console"},
		{name: "developers of JSON", give: []string{"--zap-encoder=JSON", "--zap-devel=true"}, wantLevel: "info", wantFormat: "json"},
		{name: "a console", give: []string{"--zap-encoder", "console"}, wantLevel: "info", wantFormat: "console"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := parseFlags(append(tt.give, "--pool-name=p"), io.Discard)
			require.NoError(t, err)
			assert.Equal(t, tt.wantLevel, c.Logging.Level)
			assert.Equal(t, tt.wantFormat, c.Logging.Format)
			assert.Empty(t, c.Unused)
		})
	}
}

func TestUpstreamsFlagsThatAreRefused(t *testing.T) {
	t.Parallel()
	const metric = ": no built-in engine has these metrics: leave the flags out, and label the pods of model servers llm-d.ai/engine-type " +
		"with one of vllm, sglang, trtllm-serve, triton-tensorrt-llm, triton; name the metrics of others in engineConfigs of the plugin core-metrics-extractor"
	tests := []struct {
		name string
		give []string
		want string
	}{
		{name: "queue", give: []string{"--total-queued-requests-metric=q"}, want: `--total-queued-requests-metric "q"` + metric},
		{name: "running", give: []string{"--total-running-requests-metric=r"}, want: `--total-running-requests-metric "r"` + metric},
		{
			name: "metrics of two engines", give: []string{"--kv-cache-usage-percentage-metric=vllm:kv_cache_usage_perc", "--total-queued-requests-metric=sglang:num_queue_reqs", "--lora-info-metric="},
			want: `--total-queued-requests-metric "sglang:num_queue_reqs", --kv-cache-usage-percentage-metric "vllm:kv_cache_usage_perc"` + metric,
		},
		{name: "cache configuration", give: []string{"--cache-info-metric=c"}, want: `--cache-info-metric "c"` + metric},
		{name: "gates", give: []string{"--feature-gates=flowControl=true"}, want: `--feature-gates "flowControl=true" is not supported: use featureGates in the configuration`},
		{name: "header", give: []string{"-destinationEndpointHintKey=x-dest"}, want: `--destinationEndpointHintKey "x-dest" is not supported: the picker sets x-gateway-destination-endpoint: let the gateway read that`},
		{name: "metadata", give: []string{"--DestinationEndpointHintMetadataNamespace=mine"}, want: `--DestinationEndpointHintMetadataNamespace "mine" is not supported: the picker sets metadata in envoy.lb: let the gateway read that`},
		{name: "verbosity", give: []string{"--v=abc"}, want: `--v "abc" is not a whole number`},
		{name: "short verbosity", give: []string{"-v", "abc"}, want: `--v "abc" is not a whole number`},
		{name: "old name", give: []string{"-grpcPort=abc"}, want: `--grpc-port "abc" is not a whole number`},
		{name: "tracing", give: []string{"--tracing=x"}, want: `--tracing "x" is not true or false`},
		{name: "size", give: []string{"--max-request-body=abc"}, want: `--max-request-body: "abc" is not a size such as 32Mi, 500k or 1048576`},
		{name: "duration", give: []string{"--refreshMetricsInterval=50"}, want: `--refresh-metrics-interval "50" is not a duration such as 200ms or 1m30s`},
		{name: "number", give: []string{"--refresh-metrics-budget=x"}, want: `--refresh-metrics-budget "x" is not a number`},
		{name: "mode", give: []string{"--body-mode=x"}, want: `--body-mode: "x" is not one of full-duplex, streamed, buffered, none`},
		{name: "no value", give: []string{"--grpc-port"}, want: `--grpc-port "--pool-name=p" is not a whole number`},
		{name: "misspelt", give: []string{"--pool-nam=p"}, want: "unknown flag: --pool-nam: did you mean --pool-name?"},
		{name: "unknown", give: []string{"--something-else"}, want: "unknown flag: --something-else: see --help"},
		{name: "unknown, with one dash", give: []string{"-somethingElse=1"}, want: "unknown flag: -somethingElse: see --help"},
		{name: "misspelt, with one dash", give: []string{"-poolNam=p"}, want: "unknown flag: -poolNam: did you mean --pool-name?"},
		{name: "unknown letter", give: []string{"-x"}, want: "unknown flag: -x: see --help"},
		{name: "scheme", give: []string{"--model-server-metrics-scheme=ftp"}, want: `--model-server-metrics-*: scheme: "ftp" is not known: use one of http, https`},
		{name: "path", give: []string{"--model-server-metrics-path=metrics"}, want: `--model-server-metrics-*: path: "metrics" does not begin with /`},
		{name: "port of pages", give: []string{"--model-server-metrics-port=-1"}, want: "--model-server-metrics-*: port: it is not a port: give one from 1 to 65535"},
		{name: "port", give: []string{"--metrics-port=70000"}, want: "--metrics-port 70000 is not a port: give one from 1 to 65535"},
		{name: "one port by two names", give: []string{"--metrics-port=1", "--metrics-bind-address=:2"}, want: "--metrics-port and --metrics-bind-address set the same address: leave one of them out"},
		{name: "level", give: []string{"--zap-log-level=0"}, want: `--zap-log-level "0" is not one of debug, info, error, panic, or a number above 0`},
		{name: "encoder", give: []string{"--zap-encoder=xml"}, want: `--zap-encoder "xml" is not one of json, console`},
		{name: "switch", give: []string{"--health-checking=maybe"}, want: `--health-checking "maybe" is not true or false`},
		{name: "version of TLS", give: []string{"--tls-min-version=1.2"}, want: `--tls-min-version "1.2" is not one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13`},
		{name: "client authorities in plaintext", give: []string{"--metrics-client-ca-file=/ca"}, want: "--metrics-client-ca-file has no effect without --metrics-cert-dir: give both"},
		{name: "message", give: []string{"--grpc-max-recv-msg-size=-1"}, want: "--grpc-max-recv-msg-size -1 is out of range: give up to 2Gi-1, or 0 for the default"},
		{name: "large message", give: []string{"--grpc-max-send-msg-size=2Gi"}, want: "--grpc-max-send-msg-size 2Gi is out of range: give up to 2Gi-1, or 0 for the default"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := parseFlags(append(tt.give, "--pool-name=p"), io.Discard)
			require.EqualError(t, err, tt.want)
		})
	}
	_, err := parseFlags([]string{"--pool-name=p", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,AES"}, io.Discard)
	require.ErrorContains(t, err, `--tls-cipher-suites "AES" is not one of TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384`)
}

// upstreamFlags are all flags of the pickers of the Inference Extension 0.1 to 1.5 and of the llm-d router up to 0.11, with a value that
// changes something there.
var upstreamFlags = []struct {
	flag   string
	answer string // obeyed, unused, or a part of the error
}{
	{"-DestinationEndpointHintMetadataNamespace=envoy.lb", "unused"},
	{"-certPath=/tls", "obeyed"},
	{"-configFile=/c.yaml", "obeyed"},
	{"-configText=" + pluginConfig, "obeyed"},
	{"-destinationEndpointHintKey=x-gateway-destination-endpoint", "unused"},
	{"-enablePprof", "obeyed"},
	{"-grpcHealthPort=9103", "obeyed"},
	{"-grpcPort=9102", "obeyed"},
	{"-healthChecking", "unused"},
	{"-kvCacheUsagePercentageMetric=vllm:gpu_cache_usage_perc", "unused"},
	{"-loraInfoMetric=", "unused"},
	{"-metricsPort=9190", "obeyed"},
	{"-modelServerMetricsHttpsInsecureSkipVerify=false", "obeyed"},
	{"-modelServerMetricsPath=/m", "obeyed"},
	{"-modelServerMetricsPort=8002", "obeyed"},
	{"-modelServerMetricsScheme=https", "obeyed"},
	{"-poolName=other", "obeyed"},
	{"-poolNamespace=other", "obeyed"},
	{"-refreshMetricsInterval=60ms", "obeyed"},
	{"-refreshPodsInterval=10s", "unused"},
	{"-refreshPrometheusMetricsInterval=5s", "unused"},
	{"-secureServing=false", "obeyed"},
	{"-targetEndpointKey=x-target", "let the gateway read that"},
	{"-totalQueuedRequestsMetric=sglang:num_queue_reqs", "obeyed"},
	{"--allow-experimental-plugins=true", "unused"},
	{"--cache-info-metric=c", "engineConfigs"},
	{"--cert-path=/tls", "obeyed"},
	{"--config-file=/c.yaml", "obeyed"},
	{"--config-text=" + pluginConfig, "obeyed"},
	{"--disable-endpoint-subset-filter=true", "obeyed"},
	{"--drain-timeout=10s", "obeyed"},
	{"--emit-endpoint-scores=true", "obeyed"},
	{"--enable-cert-reload=true", "obeyed"},
	{"--enable-grpc-stream-metrics=true", "obeyed"},
	{"--enable-pprof=true", "obeyed"},
	{"--endpoint-selector=app=vllm", "mutually exclusive"},
	{"--endpoint-target-ports=8000", "has no effect with --pool-name"},
	{"--fairness-id-metric-label-limit=100", "unused"},
	{"--feature-gates=flowControl=true", "featureGates in the configuration"},
	{"--feature-gates=flowControl=false", "unused"},
	{"--grpc-health-port=9103", "obeyed"},
	{"--grpc-max-recv-msg-size=10MiB", "obeyed"},
	{"--grpc-max-send-msg-size=10MiB", "obeyed"},
	{"--grpc-port=9102", "obeyed"},
	{"--ha-enable-leader-election=true", "unused"},
	{"--health-checking=true", "unused"},
	{"--kubeconfig=/k", "obeyed"},
	{"--kv-cache-usage-percentage-metric=k", "engineConfigs"},
	{"--lora-info-metric=l", "engineConfigs"},
	{"--metrics-cert-dir=/m", "obeyed"},
	{"--metrics-client-ca-file=/ca", "without --metrics-cert-dir"},
	{"--metrics-endpoint-auth=false", "obeyed"},
	{"--metrics-port=9190", "obeyed"},
	{"--metrics-staleness-threshold=5s", "obeyed"},
	{"--model-server-metrics-https-insecure-skip-verify=false", "obeyed"},
	{"--model-server-metrics-path=/m", "obeyed"},
	{"--model-server-metrics-port=8002", "obeyed"},
	{"--model-server-metrics-scheme=https", "obeyed"},
	{"--plugin-state-staleness-threshold=10m", "unused"},
	{"--pool-group=inference.networking.x-k8s.io", "is not supported: give inference.networking.k8s.io"},
	{"--pool-namespace=other", "obeyed"},
	{"--refresh-metrics-interval=50ms", "obeyed"},
	{"--refresh-prometheus-metrics-interval=1s", "unused"},
	{"--secure-serving=false", "obeyed"},
	{"--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "obeyed"},
	{"--tls-min-version=VersionTLS13", "obeyed"},
	{"--total-queued-requests-metric=q", "engineConfigs"},
	{"--total-running-requests-metric=r", "engineConfigs"},
	{"--tracing=false", "obeyed"},
	{"--v=4", "obeyed"},
	{"--zap-devel=true", "obeyed"},
	{"--zap-encoder=console", "obeyed"},
	{"--zap-log-level=debug", "obeyed"},
	{"--zap-stacktrace-level=panic", "unused"},
	{"--zap-time-encoding=epoch", "unused"},
}

func TestEveryUpstreamFlagHasAnAnswer(t *testing.T) {
	t.Parallel()
	usual, err := parseFlags([]string{"--pool-name=p"}, io.Discard)
	require.NoError(t, err)
	for _, tt := range upstreamFlags {
		t.Run(tt.flag, func(t *testing.T) {
			t.Parallel()
			c, err := parseFlags([]string{"--pool-name=p", tt.flag}, io.Discard)
			if strings.HasPrefix(tt.flag, "-poolName=") {
				c, err = parseFlags([]string{tt.flag}, io.Discard)
			}
			switch tt.answer {
			case "obeyed":
				require.NoError(t, err)
				assert.Empty(t, c.Unused)
				if !strings.HasPrefix(tt.flag, "--enable-cert-reload") { // it is always done
					assert.NotEqual(t, usual, c)
				}
			case "unused":
				require.NoError(t, err)
				require.Len(t, c.Unused, 1)
				assert.NotEmpty(t, c.Unused[0].Why)
			default:
				assert.ErrorContains(t, err, tt.answer)
			}
		})
	}
}

// The pickers of the Inference Extension accept names with one dash or two.
func TestFlagsOfUpstreamWithOneDashOrTwo(t *testing.T) {
	t.Parallel()
	for _, tt := range upstreamFlags {
		other := "-" + tt.flag
		if strings.HasPrefix(tt.flag, "--") {
			other = tt.flag[1:]
		}
		rest := []string{"--pool-name=p"}
		if strings.HasPrefix(tt.flag, "-poolName=") {
			rest = nil
		}
		want, wantErr := parseFlags(append(rest, tt.flag), io.Discard)
		got, err := parseFlags(append(rest, other), io.Discard)
		assert.Equal(t, wantErr, err, other)
		assert.Equal(t, want, got, other)
	}
}

func TestDoubleDashes(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	Default().AddFlags(fs)
	assert.Equal(t,
		[]string{"--poolName", "-x", "-v", "-v=4", "-v4", "--grpc-port=1", "--grpc-port", "-unknown", "", "-", "--", "-grpcPort"},
		DoubleDashes(fs, []string{"-poolName", "-x", "-v", "-v=4", "-v4", "-grpc-port=1", "--grpc-port", "-unknown", "", "-", "--", "-grpcPort"}))
}

func TestSourceFlags(t *testing.T) {
	t.Parallel()
	c, err := parseFlags([]string{
		"--pool-name=p", "--model-server-metrics-port=8002", "--model-server-metrics-scheme=https", `--model-server-metrics-path="/prometheus/metrics"`,
		"--model-server-metrics-https-insecure-skip-verify=false",
	}, io.Discard)
	require.NoError(t, err)
	port, skip := 8002, false
	assert.Equal(t, modelserver.Source{Scheme: "https", Path: "/prometheus/metrics", Port: &port, InsecureSkipVerify: &skip}, c.MetricsSource)

	c, err = parseFlags([]string{"--pool-name=p", "--model-server-metrics-port=0", "--model-server-metrics-path=/metrics"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, modelserver.DefaultSettings().Source, c.MetricsSource, "the usual path does not replace that of an engine")
}
