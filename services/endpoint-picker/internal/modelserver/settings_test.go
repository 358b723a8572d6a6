package modelserver

import (
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
)

func TestDefaultSettingsAreValid(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	require.NoError(t, s.Validate())
}

func TestSettingsThatAreRefused(t *testing.T) {
	t.Parallel()
	engines := func(e ...Engine) Settings { return Settings{Extractor: Extractor{Engines: e}} }
	named := func(e Engine) Settings {
		e.Name, e.Waiting = "a", Metrics{"queue"}
		return engines(e)
	}
	tests := []struct {
		name string
		give Settings // the default if empty
		want string
	}{
		{name: "scheme", give: Settings{Source: Source{Scheme: "ftp"}}, want: `scheme: "ftp" is not known: use one of http, https`},
		{name: "path", give: Settings{Source: Source{Path: "metrics"}}, want: `path: "metrics" does not begin with /`},
		{name: "path over two lines", give: Settings{Source: Source{Path: "/m\r\nHost: x"}}, want: `path: "/m\r\nHost: x" has characters that must be escaped, as in a URL`},
		{name: "large port", give: Settings{Source: Source{Port: new(70000)}}, want: "port: it is not a port: give one from 1 to 65535"},
		{name: "port 0", give: Settings{Source: Source{Port: new(0)}}, want: "port: it is not a port: give one from 1 to 65535"},
		{name: "interval", give: Settings{Source: Source{Interval: time.Millisecond}}, want: "interval: 1ms is too short: give at least 10ms"},
		{name: "negative interval", give: Settings{Source: Source{Interval: -1}}, want: "interval: -1ns is too short: give at least 10ms"},
		{name: "half a certificate", give: Settings{Source: Source{Scheme: schemeHTTPS, ClientCertPath: "/c"}}, want: "clientCertPath: give clientCertPath and clientKeyPath, or neither"},
		{name: "CA for http", give: Settings{Source: Source{CACertPath: "/c"}}, want: `scheme: certificates have no effect with "http": use https or leave them out`},
		{name: "default engine", give: Settings{Extractor: Extractor{DefaultEngine: "vlm"}}, want: `defaultEngine: "vlm" is not known: did you mean "vllm"?`},
		{name: "engine without a name", give: engines(Engine{Waiting: Metrics{"queue"}}), want: `engineConfigs[0].name: give the engine a name other than "default"`},
		{name: "reserved name", give: engines(Engine{Name: "default", Waiting: Metrics{"queue"}}), want: `engineConfigs[0].name: give the engine a name other than "default"`},
		{name: "name twice", give: engines(Engine{Name: "a", Waiting: Metrics{"q"}}, Engine{Name: "a", Waiting: Metrics{"q"}}), want: `engineConfigs[1].name: engine "a" is listed twice: keep one`},
		{name: "no metric of requests", give: engines(Engine{Name: "a"}), want: "engineConfigs[0]: give at least one of queuedRequestsSpec and runningRequestsSpec"},
		{name: "metric", give: named(Engine{KVUsage: Metrics{"sum(x)"}}), want: `engineConfigs[0].kvUsageSpec: metric "sum(x)": does not begin with the name of a metric`},
		{name: "attribute", give: named(Engine{Custom: []CustomMetric{{Metric: "x"}}}), want: "engineConfigs[0].customMetrics[0]: give both attributeKey and metricSpec"},
		{name: "attribute twice", give: named(Engine{Custom: []CustomMetric{{"k", "x"}, {"k", "y"}}}), want: `engineConfigs[0].customMetrics[1].attributeKey: metric "k" is listed twice: keep one`},
		{name: "custom metric", give: named(Engine{Custom: []CustomMetric{{"k", "x{"}}}), want: `engineConfigs[0].customMetrics[0].metricSpec: metric "x{": labels must be in braces at the end`},
		{
			name: "all problems at once", give: Settings{Source: Source{Scheme: "ftp", Port: new(-1)}, Extractor: Extractor{DefaultEngine: "x"}},
			want: "scheme: \"ftp\" is not known: use one of http, https\nport: it is not a port: give one from 1 to 65535\n" +
				"defaultEngine: \"x\" is not known: use one of vllm, sglang, trtllm-serve, triton-tensorrt-llm, triton",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, defaults := tt.give, DefaultSettings()
			s.Source.Scheme = cmp.Or(s.Source.Scheme, defaults.Source.Scheme)
			s.Extractor.EngineLabel = defaults.Extractor.EngineLabel
			s.Extractor.DefaultEngine = cmp.Or(s.Extractor.DefaultEngine, defaults.Extractor.DefaultEngine)
			require.EqualError(t, s.Validate(), tt.want)
		})
	}
	require.EqualError(t, (&Settings{}).Validate(), `scheme: "" is not known: use one of http, https
engineLabelKey: it is empty: leave it out for llm-d.ai/engine-type
defaultEngine: it is empty: leave it out for vllm`)
}

func TestCertificatesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	tests := []struct {
		name string
		give Source
		want string
	}{
		{name: "no file", give: Source{CACertPath: empty + "x"}, want: "prepare scraping: read caCertPath: open"},
		{name: "no certificate", give: Source{CACertPath: empty}, want: "has no certificate"},
		{name: "no pair", give: Source{ClientCertPath: empty, ClientKeyPath: empty}, want: "read clientCertPath and clientKeyPath"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			scraper := idle()
			before := scraper.plan.Load()
			s := DefaultSettings()
			s.Source = tt.give
			s.Source.Scheme = schemeHTTPS
			_, err := CompilePlan(s, scraper.params.Options)
			require.ErrorContains(t, err, tt.want)
			assert.Same(t, before, scraper.plan.Load(), "the settings in force stay")
		})
	}
}

// idle returns a scraper that does not run.
func idle() *Scraper {
	return NewScraper(ScraperParams{Options: DefaultOptions(), Budget: NewBudget(1), Log: zap.NewNop(), Outliers: deaf{}, Clock: clock.RealClock{}})
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
				s.Extractor.EngineLabel = tt.key
			}
			p, err := CompilePlan(s, DefaultOptions())
			require.NoError(t, err)
			got, known := p.engineOf(&endpoint.Description{Labels: tt.labels})
			assert.Equal(t, tt.want, got.Name)
			assert.Equal(t, tt.known, known)
		})
	}
}

func TestPathOfAnEngine(t *testing.T) {
	t.Parallel()
	s := DefaultSettings()
	p, err := CompilePlan(s, DefaultOptions())
	require.NoError(t, err)
	assert.Equal(t, "/metrics", p.engines[EngineVLLM].Path)
	assert.Equal(t, "/prometheus/metrics", p.engines[EngineTRTLLMServe].Path)

	for _, path := range []string{"/m?name[]=vllm:num_requests_running", "/metrics"} {
		s.Source.Path = path
		p, err = CompilePlan(s, DefaultOptions())
		require.NoError(t, err)
		assert.Equal(t, path, p.engines[EngineVLLM].Path)
		assert.Equal(t, path, p.engines[EngineTRTLLMServe].Path, "a configured path is that of all engines")
	}
}

func TestPreparedSettingsTakeEffectWhenTheyAreUsed(t *testing.T) {
	t.Parallel()
	s := idle()
	assert.Equal(t, DefaultOptions().Interval, s.plan.Load().interval)
	settings := DefaultSettings()
	settings.Source.Interval = 5 * time.Second
	p, err := CompilePlan(settings, s.params.Options)
	require.NoError(t, err)
	assert.Equal(t, DefaultOptions().Interval, s.plan.Load().interval, "Prepare changes nothing")
	s.SetPlan(p)
	assert.Equal(t, Interval{Fastest: 5 * time.Second, Slowest: 5 * time.Second}, s.plan.Load().interval)

	settings.Source.Scheme = "ftp"
	_, err = CompilePlan(settings, s.params.Options)
	require.EqualError(t, err, `prepare scraping: scheme: "ftp" is not known: use one of http, https`)
}

// TestEveryParameterChangesScrapes checks that no parameter is accepted and ignored: each changes the connection, the request,
// the pace, or the values that are read from a page.
func TestEveryParameterChangesScrapes(t *testing.T) {
	t.Parallel()
	ca, certificate, key := certificateFiles(t)
	source := func(change func(s *Source)) func(*Settings) {
		return func(s *Settings) { s.Source.Scheme = schemeHTTPS; change(&s.Source) }
	}
	engine := func(change func(e *Engine)) func(*Settings) {
		return func(s *Settings) { change(&s.Extractor.Engines[0]) }
	}
	changes := map[string]func(*Settings){
		"scheme":             source(func(*Source) {}),
		"path":               source(func(s *Source) { s.Path = "/m" }),
		"port":               source(func(s *Source) { s.Port = new(9000) }),
		"insecureSkipVerify": source(func(s *Source) { s.InsecureSkipVerify = new(false) }),
		"caCertPath":         source(func(s *Source) { s.CACertPath = ca }),
		"clientCertPath":     source(func(s *Source) { s.ClientCertPath, s.ClientKeyPath = certificate, key }),
		"clientKeyPath":      source(func(s *Source) { s.ClientCertPath, s.ClientKeyPath = certificate, key+"x" }),
		"interval":           source(func(s *Source) { s.Interval = 20 * time.Millisecond }),

		"engineLabelKey":          func(s *Settings) { s.Extractor.EngineLabel = "other" },
		"defaultEngine":           func(s *Settings) { s.Extractor.DefaultEngine = EngineSGLang },
		"name":                    engine(func(e *Engine) { e.Name = "another" }),
		"queuedRequestsSpec":      engine(func(e *Engine) { e.Waiting = Metrics{"a"} }),
		"runningRequestsSpec":     engine(func(e *Engine) { e.Running = Metrics{"a"} }),
		"kvUsageSpec":             engine(func(e *Engine) { e.KVUsage = Metrics{"a"} }),
		"loraSpec":                engine(func(e *Engine) { e.LoRA = "lora" }),
		"cacheInfoSpec":           engine(func(e *Engine) { e.CacheInfo, e.BlockSizeLabel, e.BlocksLabel = "info", "x", "y" }),
		"cacheBlockSizeLabelName": engine(func(e *Engine) { e.CacheInfo, e.BlockSizeLabel, e.BlocksLabel = "info", "z", "y" }),
		"cacheNumBlocksLabelName": engine(func(e *Engine) { e.CacheInfo, e.BlockSizeLabel, e.BlocksLabel = "info", "x", "w" }),
		"cacheBlockSizeSpec":      engine(func(e *Engine) { e.BlockSize, e.Blocks = "b", "c" }),
		"cacheNumBlocksSpec":      engine(func(e *Engine) { e.BlockSize, e.Blocks = "b", "d" }),
		"attributeKey":            engine(func(e *Engine) { e.Custom = []CustomMetric{{"k", "b"}} }),
		"metricSpec":              engine(func(e *Engine) { e.Custom = []CustomMetric{{"k", "c"}} }),
	}
	var names []string
	for _, typ := range []reflect.Type{reflect.TypeFor[Source](), reflect.TypeFor[Extractor](), reflect.TypeFor[Engine](), reflect.TypeFor[CustomMetric]()} {
		for _, f := range strictyaml.Fields(typ) {
			if f.Name != "engineConfigs" && f.Name != "customMetrics" { // their elements are
				names = append(names, f.Name)
			}
		}
	}
	assert.ElementsMatch(t, slices.Collect(maps.Keys(changes)), names)
	seen := map[string]string{scrapes(t, func(*Settings) {}): "the default"}
	for name, change := range changes {
		result := scrapes(t, change)
		assert.Empty(t, seen[result], "%s has the same result as %s", name, seen[result])
		seen[result] = name
	}
}

// scrapes describes the scrapes with changed settings, of servers with several labels.
func scrapes(t *testing.T, change func(*Settings)) string {
	t.Helper()
	const page = "q 1\na 3\nb 16\nc 100\nd 200\ninfo{x=\"16\",y=\"10\",z=\"32\",w=\"30\"} 1\nlora{max_lora=\"2\",running_lora_adapters=\"m\"} 1\nsglang:num_queue_reqs 7\n"
	s := DefaultSettings()
	s.Extractor.Engines = []Engine{{Name: "mine", Waiting: Metrics{"q"}}}
	change(&s)
	p, err := CompilePlan(s, Options{Interval: Interval{Fastest: 50 * time.Millisecond, Slowest: time.Second}})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	if p.tls != nil {
		fmt.Fprint(&text, p.tls.InsecureSkipVerify, p.tls.RootCAs != nil, len(p.tls.Certificates))
	}
	fmt.Fprint(&text, p.interval, reflect.Indirect(reflect.ValueOf(p.settings.Source.Port)))
	for _, labels := range []map[string]string{nil, {LabelEngine: "mine"}, {LabelEngine: "another"}, {"other": "mine"}} {
		e, known := p.engineOf(&endpoint.Description{Labels: labels})
		gauges, err := newReading(e).readPage(strings.NewReader(page), make([]byte, maxLine))
		fmt.Fprintf(&text, "\n%s%v %+v %v", p.requestBytes("host", e), known, gauges, err)
		if values := gauges.Page; values != nil {
			fmt.Fprintf(&text, " %+v %+v", values.Adapters, values.Attributes)
		}
	}
	return regexp.MustCompile(`0x[0-9a-f]+`).ReplaceAllString(text.String(), "page")
}

// certificateFiles writes an authority, a certificate and its key.
func certificateFiles(t *testing.T) (ca, certificate, key string) {
	t.Helper()
	own := newCertificate(t)
	folder := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(folder, name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	private, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	require.NoError(t, err)
	der := own.Certificate[0]
	return write("ca.crt", "CERTIFICATE", der), write("tls.crt", "CERTIFICATE", der), write("tls.key", "PRIVATE KEY", private)
}
