package modelserver

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestDefaultSettingsAreValid(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	require.NoError(t, s.Validate())
}

func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	queue := []string{"queue"}
	tests := []struct {
		name string
		give func(*Settings)
		want string
	}{
		{name: "scheme", give: func(s *Settings) { s.Scheme = "ftp" }, want: `scheme "ftp" is not supported: give http or https`},
		{name: "path", give: func(s *Settings) { s.Path = "metrics" }, want: `path "metrics" is not a path: give one such as /metrics, escaped as in a URL`},
		{name: "path over two lines", give: func(s *Settings) { s.Path = "/m\r\nHost: x" }, want: `path "/m\r\nHost: x" is not a path: give one such as /metrics, escaped as in a URL`},
		{name: "port", give: func(s *Settings) { s.Port = 70000 }, want: "port 70000 is not a port: give one from 1 to 65535, or 0 for each endpoint's own"},
		{name: "interval", give: func(s *Settings) { s.Interval.Fastest = time.Millisecond }, want: "interval 1ms is too short: give at least 10ms"},
		{name: "negative interval", give: func(s *Settings) { s.Interval.Slowest = -1 }, want: "interval 0s to -1ns is negative: leave it out to use the flags"},
		{name: "half a certificate", give: func(s *Settings) { s.Scheme, s.ClientCertPath = schemeHTTPS, "/c" }, want: "clientCertPath and clientKeyPath belong together: give both or none"},
		{name: "CA for http", give: func(s *Settings) { s.CACertPath = "/c" }, want: "caCertPath and clientCertPath have no effect with scheme http: set https or leave them out"},
		{name: "CA that is not used", give: func(s *Settings) { s.Scheme, s.CACertPath = schemeHTTPS, "/c" }, want: "caCertPath has no effect with insecureSkipVerify: set insecureSkipVerify to false or leave caCertPath out"},
		{name: "label", give: func(s *Settings) { s.EngineLabel = "" }, want: "engineLabelKey is empty: give a label such as llm-d.ai/engine-type"},
		{name: "default engine", give: func(s *Settings) { s.DefaultEngine = "tgi" }, want: `defaultEngine "tgi" is not one of the engines`},
		{name: "engine without a name", give: func(s *Settings) { s.Engines = []Engine{{Waiting: queue}} }, want: "engineConfigs[0].name is missing"},
		{name: "reserved name", give: func(s *Settings) { s.Engines = []Engine{{Name: "default", Waiting: queue}} }, want: `engineConfigs[0].name "default" is reserved: set defaultEngine instead`},
		{name: "name twice", give: func(s *Settings) { s.Engines = []Engine{{Name: "a", Waiting: queue}, {Name: "a", Waiting: queue}} }, want: `engineConfigs[1].name "a" is listed twice`},
		{name: "nothing of requests", give: func(s *Settings) { s.Engines = []Engine{{Name: "a"}} }, want: "engineConfigs[0].queuedRequestsSpec and runningRequestsSpec are missing: give at least one of them"},
		{name: "metric", give: func(s *Settings) { s.Engines = []Engine{{Name: "a", Waiting: queue, KVUsage: []string{"sum(x)"}}} }, want: `engineConfigs[0].kvUsageSpec: metric "sum(x)": does not begin with the name of a metric`},
		{name: "cache info without labels", give: func(s *Settings) { s.Engines = []Engine{{Name: "a", Waiting: queue, CacheInfo: "x"}} }, want: "engineConfigs[0].cacheInfoSpec needs cacheBlockSizeLabelName and cacheNumBlocksLabelName"},
		{name: "attribute", give: func(s *Settings) {
			s.Engines = []Engine{{Name: "a", Waiting: queue, Custom: []CustomMetric{{Metric: "x"}}}}
		}, want: "engineConfigs[0].customMetrics[0] needs an attributeKey of its own and a metricSpec"},
		{name: "attribute twice", give: func(s *Settings) {
			s.Engines = []Engine{{Name: "a", Waiting: queue, Custom: []CustomMetric{{"k", "x"}, {"k", "y"}}}}
		}, want: "engineConfigs[0].customMetrics[1] needs an attributeKey of its own and a metricSpec"},
		{name: "custom metric", give: func(s *Settings) {
			s.Engines = []Engine{{Name: "a", Waiting: queue, Custom: []CustomMetric{{"k", "x{"}}}}
		}, want: `engineConfigs[0].customMetrics[0].metricSpec: metric "x{": labels must be in braces at the end`},
		{name: "engine's path", give: func(s *Settings) { s.Engines = []Engine{{Name: "a", Waiting: queue, Path: "x"}} }, want: `engineConfigs[0].path "x" is not a path: give one such as /metrics, escaped as in a URL`},
		{name: "all of it at once", give: func(s *Settings) { s.Scheme, s.Port, s.DefaultEngine = "", -1, "" }, want: "scheme \"\" is not supported: give http or https\n" +
			"port -1 is not a port: give one from 1 to 65535, or 0 for each endpoint's own\ndefaultEngine \"\" is not one of the engines"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := DefaultSettings()
			tt.give(&s)
			require.EqualError(t, s.Validate(), tt.want)
		})
	}
}

func TestCertificatesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	tests := []struct {
		name string
		give Settings
		want string
	}{
		{name: "no file", give: Settings{CACertPath: empty + "x"}, want: "read caCertPath: open"},
		{name: "no certificate", give: Settings{CACertPath: empty}, want: "has no certificate"},
		{name: "no pair", give: Settings{ClientCertPath: empty, ClientKeyPath: empty}, want: "read clientCertPath and clientKeyPath"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := DefaultSettings()
			s.Scheme, s.InsecureSkipVerify = schemeHTTPS, false
			s.CACertPath, s.ClientCertPath, s.ClientKeyPath = tt.give.CACertPath, tt.give.ClientCertPath, tt.give.ClientKeyPath
			_, err := newPlan(s)
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestEngineOfAnEndpoint(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		key    string
		labels map[string]string
		want   string
		known  bool
	}{
		{name: "no label", want: EngineVLLM, known: true},
		{name: "label", labels: map[string]string{LabelEngine: "sglang"}, want: EngineSGLang, known: true},
		{name: "legacy label", labels: map[string]string{labelEngineLegacy: "triton"}, want: EngineTriton, known: true},
		{name: "both", labels: map[string]string{LabelEngine: "sglang", labelEngineLegacy: "triton"}, want: EngineSGLang, known: true},
		{name: "none that is known", labels: map[string]string{LabelEngine: "tgi"}, want: EngineVLLM},
		{name: "the default by name", labels: map[string]string{LabelEngine: "default"}, want: EngineVLLM, known: true},
		{name: "another key", key: "engine", labels: map[string]string{"engine": "sglang"}, want: EngineSGLang, known: true},
		{name: "another key, legacy label", key: "engine", labels: map[string]string{labelEngineLegacy: "sglang"}, want: EngineVLLM, known: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := DefaultSettings()
			if tt.key != "" {
				s.EngineLabel = tt.key
			}
			p, err := newPlan(s)
			require.NoError(t, err)
			got, known := p.engineOf(&endpoint.Description{Labels: tt.labels})
			assert.Equal(t, tt.want, got.engine)
			assert.Equal(t, tt.known, known)
		})
	}
}

func TestPathOfAnEngine(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	p, err := newPlan(s)
	require.NoError(t, err)
	assert.Equal(t, "/metrics", p.engines[EngineVLLM].path)
	assert.Equal(t, "/prometheus/metrics", p.engines[EngineTRTLLMServe].path)

	s.Path = "/m?name[]=vllm:num_requests_running"
	p, err = newPlan(s)
	require.NoError(t, err)
	assert.Equal(t, s.Path, p.engines[EngineVLLM].path)
	assert.Equal(t, s.Path, p.engines[EngineTRTLLMServe].path, "a path that is configured is for all")
}

func TestConfigureKeepsWhatFlagsSay(t *testing.T) {
	t.Parallel()
	s := simulate(DefaultOptions(), 0)
	assert.Equal(t, DefaultOptions().Interval, s.plan.Load().Interval)
	settings := DefaultSettings()
	settings.Interval.Fastest = 5 * time.Second
	require.NoError(t, s.Configure(settings))
	assert.Equal(t, Interval{Fastest: 5 * time.Second, Slowest: 5 * time.Second}, s.plan.Load().Interval)

	last := s.plan.Load()
	settings.Scheme = "ftp"
	require.ErrorContains(t, s.Configure(settings), `configure scraping: scheme "ftp"`)
	assert.Same(t, last, s.plan.Load(), "what cannot be used changes nothing")
}
