package plugins

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/endpoint"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// parameterCase shows what each parameter of a type does, beside the parameters in base: one text for each parameter, by its
// path.
type parameterCase struct {
	base     string
	changes  map[string]string // texts with another result
	noEffect map[string]string // texts without an effect, but with a warning
	refused  map[string]string // texts that are refused; other values have no meaning here
}

const engineBase = "{engineConfigs: [{name: mine, queuedRequestsSpec: q}], defaultEngine: mine}"

// engine returns the parameters of engineBase with further ones of the engine.
func engine(further string) string {
	return strings.Replace(engineBase, "queuedRequestsSpec: q", "queuedRequestsSpec: q, "+further, 1)
}

// parameterCases has an entry for each type with parameters.
var parameterCases = map[string]parameterCase{
	"active-request-scorer": {
		changes:  map[string]string{"idleThreshold": "{idleThreshold: 3}", "maxBusyScore": "{maxBusyScore: 0.5}"},
		noEffect: map[string]string{"requestTimeout": "{requestTimeout: 2m}"},
		refused:  map[string]string{"inFlightLoadProducerName": "{inFlightLoadProducerName: other}"},
	},
	"approx-prefix-cache-producer": {
		changes: map[string]string{
			"autoTune": "{autoTune: false}", "blockSizeTokens": "{blockSizeTokens: 64}", "blockSize": "{blockSize: 32}",
			"maxPrefixTokensToMatch": "{maxPrefixTokensToMatch: 1024}", "lruCapacityPerServer": "{lruCapacityPerServer: 1000}",
			"maxPrefixBlocksToMatch": "{maxPrefixTokensToMatch: 0, maxPrefixBlocksToMatch: 256}",
		},
		noEffect: map[string]string{"maxPrefixBlocksToMatch": "{maxPrefixBlocksToMatch: 256}", "blockSize": "{blockSize: 64, blockSizeTokens: 16}"},
	},
	"by-label": {
		base:    "{label: gpu, validValues: [a]}",
		changes: map[string]string{"label": "{label: zone, validValues: [a]}", "validValues": "{label: gpu, validValues: [b]}", "allowsNoLabel": "{label: gpu, validValues: [a], allowsNoLabel: true}"},
	},
	"concurrency-detector": {
		changes: map[string]string{
			"concurrencyMode": "{concurrencyMode: hybrid}", "maxConcurrency": "{maxConcurrency: 5}", "headroom": "{maxConcurrency: 5, headroom: 0.5}",
			"maxTokenConcurrency": "{concurrencyMode: tokens, maxTokenConcurrency: 5000}",
		},
		noEffect: map[string]string{"maxTokenConcurrency": "{maxTokenConcurrency: 5000}", "maxConcurrency": "{concurrencyMode: tokens, maxConcurrency: 5}"},
		refused:  map[string]string{"inFlightLoadProducerName": "{inFlightLoadProducerName: other}"},
	},
	"consistent-hash-scorer": {changes: map[string]string{"loadFactor": "{loadFactor: 1}"}},
	"core-metrics-extractor": {
		base: engineBase,
		changes: map[string]string{
			"engineLabelKey": strings.Replace(engineBase, "{engine", "{engineLabelKey: e, engine", 1), "defaultEngine": strings.Replace(engineBase, ", defaultEngine: mine", "", 1),
			"engineConfigs[].name": strings.ReplaceAll(engineBase, "mine", "other"), "engineConfigs[].queuedRequestsSpec": strings.Replace(engineBase, ": q", ": r", 1),
			"engineConfigs[].runningRequestsSpec": engine("runningRequestsSpec: r"), "engineConfigs[].kvUsageSpec": engine("kvUsageSpec: r"), "engineConfigs[].loraSpec": engine("loraSpec: r"),
			"engineConfigs[].cacheInfoSpec": engine("cacheInfoSpec: c, cacheBlockSizeLabelName: s, cacheNumBlocksLabelName: b"), "engineConfigs[].cacheBlockSizeLabelName": engine("cacheInfoSpec: c, cacheBlockSizeLabelName: t, cacheNumBlocksLabelName: b"),
			"engineConfigs[].cacheNumBlocksLabelName": engine("cacheInfoSpec: c, cacheBlockSizeLabelName: s, cacheNumBlocksLabelName: d"), "engineConfigs[].cacheBlockSizeSpec": engine("cacheBlockSizeSpec: s, cacheNumBlocksSpec: b"),
			"engineConfigs[].cacheNumBlocksSpec": engine("cacheBlockSizeSpec: s, cacheNumBlocksSpec: c"), "engineConfigs[].customMetrics[].attributeKey": engine("customMetrics: [{attributeKey: a, metricSpec: m}]"),
			"engineConfigs[].customMetrics[].metricSpec": engine("customMetrics: [{attributeKey: a, metricSpec: n}]"),
		},
		noEffect: map[string]string{
			"engineConfigs[].cacheBlockSizeLabelName": engine("cacheBlockSizeLabelName: s"), "engineConfigs[].cacheNumBlocksLabelName": engine("cacheNumBlocksLabelName: s"),
			"engineConfigs[].cacheBlockSizeSpec": engine("cacheBlockSizeSpec: s"), "engineConfigs[].cacheNumBlocksSpec": engine("cacheNumBlocksSpec: s"),
		},
	},
	"endpoint-attribute-filter": {
		base: threshold("t", "LessThan", 50, ""),
		changes: map[string]string{
			"attribute": threshold("x", "LessThan", 50, ""), "onMissing": threshold("t", "LessThan", 50, "onMissing: Fail, "),
			"fallbackOnEmpty": threshold("t", "LessThan", 50, "onMissing: Fail, fallbackOnEmpty: true, "), "algorithm.threshold.operator": threshold("t", "GreaterThan", 50, ""),
			"algorithm.threshold.value": threshold("t", "LessThan", 20, ""),
		},
		refused: map[string]string{"producer": threshold("t", "LessThan", 50, "producer: other, "), "algorithm.type": "{attribute: t, algorithm: {type: topK}}"},
	},
	"endpoint-attribute-scorer": {
		base: "{attributeKey: t, algorithm: {type: linear_lower_is_better}}",
		changes: map[string]string{
			"attributeKey": "{attributeKey: x, algorithm: {type: linear_lower_is_better}}", "algorithm.type": "{attributeKey: t, algorithm: {type: linear_higher_is_better}}",
			"algorithm.normalization.fixedRange.min": "{attributeKey: t, algorithm: {type: linear_lower_is_better, normalization: {fixedRange: {min: 10, max: 100}}}}",
			"algorithm.normalization.fixedRange.max": "{attributeKey: t, algorithm: {type: linear_lower_is_better, normalization: {fixedRange: {min: 10, max: 50}}}}",
		},
		refused: map[string]string{
			"producer": "{attributeKey: t, producer: other, algorithm: {type: linear_lower_is_better}}",
			// It is the default, so it changes nothing alone.
			"algorithm.normalization.adaptiveRange": "{attributeKey: t, algorithm: {type: linear_lower_is_better, normalization: {adaptiveRange: {}, fixedRange: {min: 1, max: 2}}}}",
		},
	},
	"file-discovery": {base: "{path: /a}", changes: map[string]string{"path": "{path: /b}", "watchFile": "{path: /a, watchFile: true}"}},
	"inflight-load-producer": {
		noEffect: map[string]string{
			"addEstimatedOutputTokens": "{addEstimatedOutputTokens: true}", "outputRatio": "{outputRatio: 2}",
			"maxEstimatedOutputTokens": "{maxEstimatedOutputTokens: 100}", "syncCrossReplicaState": "{syncCrossReplicaState: true}",
		},
		refused: map[string]string{"prefixMatchInfoProducerName": "{prefixMatchInfoProducerName: other}"},
	},
	"label-selector-filter": {
		base: "{matchLabels: {gpu: a}}",
		changes: map[string]string{
			"matchLabels": "{matchLabels: {zone: b}}", "matchExpressions[].key": "{matchExpressions: [{key: zone, operator: In, values: [a]}]}",
			"matchExpressions[].operator": "{matchExpressions: [{key: gpu, operator: NotIn, values: [a]}]}", "matchExpressions[].values": "{matchExpressions: [{key: gpu, operator: In, values: [b]}]}",
		},
	},
	"load-aware-scorer": {changes: map[string]string{"threshold": "{threshold: 5}"}},
	"max-score-picker":  {changes: map[string]string{"maxNumOfEndpoints": "{maxNumOfEndpoints: 2}"}},
	"metrics-data-source": {
		changes: map[string]string{
			"scheme": "{scheme: https}", "path": "{path: /m}", "port": "{port: 9000}", "interval": "{interval: 1s}", "insecureSkipVerify": "{scheme: https, insecureSkipVerify: false}",
			"caCertPath": "{scheme: https, caCertPath: /ca}", "clientCertPath": "{scheme: https, clientCertPath: /c, clientKeyPath: /k}", "clientKeyPath": "{scheme: https, clientCertPath: /c, clientKeyPath: /l}",
		},
		noEffect: map[string]string{"insecureSkipVerify": "{insecureSkipVerify: false}"},
	},
	"prefix-cache-affinity-filter": {
		changes: map[string]string{
			"affinityThreshold": "{affinityThreshold: 0.3}", "explorationProbability": "{explorationProbability: 0.5}", "maxTTFTPenaltyMs": "{maxTTFTPenaltyMs: 100}",
			"ttftSource": "{maxTTFTPenaltyMs: 100, ttftSource: latencyPredictor}", "peakPrefillThroughput": "{maxTTFTPenaltyMs: 100, peakPrefillThroughput: 1000}",
			"maxTokensInFlightPenalty": "{maxTTFTPenaltyMs: 0, maxTokensInFlightPenalty: 10000}",
		},
		noEffect: map[string]string{
			"peakPrefillThroughput":         "{ttftSource: latencyPredictor, peakPrefillThroughput: 1000}",
			"prefillCalibrationFile":        "{peakPrefillThroughput: 15928, prefillCalibrationFile: /f}",
			"prefillCalibrationFingerprint": "{prefillCalibrationFingerprint: a}", "prefillCalibrationRequired": "{prefillCalibrationRequired: true}",
		},
		refused: map[string]string{
			"prefixMatchInfoProducerName": "{prefixMatchInfoProducerName: other}", "latencyPredictionInfoProducerName": "{latencyPredictionInfoProducerName: other}",
			"inFlightLoadProducerName": "{inFlightLoadProducerName: other}", "prefillCalibrationFile": "{prefillCalibrationFile: /f}",
		},
	},
	"prefix-cache-scorer": {
		changes: map[string]string{
			"matchLengthWeight": "{matchLengthWeight: 0.5}", "matchLengthScaleTokens": "{matchLengthWeight: 0.5, matchLengthScaleTokens: 1000}",
			"hashBlockSize": "{hashBlockSize: 32}", "blockSize": "{blockSize: 128}", "blockSizeTokens": "{blockSizeTokens: 64}", "autoTune": "{autoTune: false}",
			"maxPrefixBlocksToMatch": "{maxPrefixBlocksToMatch: 256}", "maxPrefixTokensToMatch": "{maxPrefixTokensToMatch: 1024}", "lruCapacityPerServer": "{lruCapacityPerServer: 1000}",
		},
		noEffect: map[string]string{
			"matchLengthScaleTokens": "{matchLengthScaleTokens: 1000}", "mode": "{mode: estimate}", "indexerConfig": "{indexerConfig: {a: b}}",
			"kvCacheIndexerConfig": "{kvCacheIndexerConfig: {a: b}}", "kvEventsConfig": "{kvEventsConfig: {a: b}}", "kvBlockIndexConfig": "{kvBlockIndexConfig: {a: b}}",
			"tokenProcessorConfig": "{tokenProcessorConfig: {a: b}}", "tokenizersPoolConfig": "{tokenizersPoolConfig: {a: b}}", "kvCacheRedisAddr": "{kvCacheRedisAddr: a}",
		},
		refused: map[string]string{"prefixMatchInfoProducerName": "{prefixMatchInfoProducerName: other}", "mode": "{mode: cache_tracking}"},
	},
	"random-picker":           {changes: map[string]string{"maxNumOfEndpoints": "{maxNumOfEndpoints: 2}"}},
	"session-affinity-filter": sessionParameters,
	"session-affinity-scorer": sessionParameters,
	"token-load-scorer": {
		changes: map[string]string{"queueThresholdTokens": "{queueThresholdTokens: 10000}"},
		refused: map[string]string{"inFlightLoadProducerName": "{inFlightLoadProducerName: other}"},
	},
	"token-producer": {
		noEffect: map[string]string{"estimate": "{estimate: {a: b}}"},
		refused:  map[string]string{"modelName": "{modelName: m}", "vllm": "{vllm: {}}", "udsTokenizerConfig": "{udsTokenizerConfig: {}}"},
	},
	"utilization-detector": {
		changes: map[string]string{
			"queueDepthThreshold": "{queueDepthThreshold: 3}", "kvCacheUtilThreshold": "{kvCacheUtilThreshold: 0.5}",
			"metricsStalenessThreshold": "{metricsStalenessThreshold: 1m}", "headroom": "{headroom: 1}",
		},
	},
	"utilization-filter": {
		base: "{conditions: [{metric: waiting-queue, maxValue: 3}]}",
		changes: map[string]string{
			"conditions[].metric": "{conditions: [{metric: running-requests, maxValue: 3}]}", "conditions[].maxValue": "{conditions: [{metric: waiting-queue, maxValue: 5}]}",
			"fallbackOnEmpty": "{conditions: [{metric: waiting-queue, maxValue: 0}], fallbackOnEmpty: true}",
		},
		refused: map[string]string{"inFlightLoadProducerName": "{conditions: [{metric: waiting-queue, maxValue: 3}], inFlightLoadProducerName: other}"},
	},
	"weighted-random-picker": {changes: map[string]string{"maxNumOfEndpoints": "{maxNumOfEndpoints: 2}"}},
}

var sessionParameters = parameterCase{
	changes: map[string]string{
		"strategy": "{strategy: session_id}", "encodedEndpointHeaderConfig.header": "{encodedEndpointHeaderConfig: {header: x-chat}}",
		"sessionIdConfig.sources[].header":     "{strategy: session_id, sessionIdConfig: {sources: [{header: x-chat}]}}",
		"sessionIdConfig.evictionTtlSeconds":   "{strategy: session_id, sessionIdConfig: {evictionTtlSeconds: 60}}",
		"sessionIdConfig.evictionSweepSeconds": "{strategy: session_id, sessionIdConfig: {evictionSweepSeconds: 60}}",
	},
	noEffect: map[string]string{
		"sessionIdConfig.evictionTtlSeconds": "{sessionIdConfig: {evictionTtlSeconds: 60}}",
		"encodedEndpointHeaderConfig.header": "{strategy: session_id, encodedEndpointHeaderConfig: {header: x-chat}}",
	},
	refused: map[string]string{
		"profileName":                         "{profileName: prefill}",
		"sessionIdConfig.sources[].attribute": "{strategy: session_id, sessionIdConfig: {sources: [{attribute: agent-identity}]}}",
		"sessionIdConfig.sources[].producer":  "{strategy: session_id, sessionIdConfig: {sources: [{attribute: SessionIDDataKey, producer: other}]}}",
	},
}

// TestEveryParameterHasAnEffect checks that no parameter is accepted and ignored: a change of it changes the results of the
// plugin, or it is refused, or a warning says that it has no effect.
func TestEveryParameterHasAnEffect(t *testing.T) {
	t.Parallel()
	for _, typed := range Types() {
		if typed.Name == typeSessionIDProducer {
			continue // sessions read its parameters: see TestSessionSourcesOfAProducer
		}
		t.Run(typed.Name, func(t *testing.T) {
			t.Parallel()
			tt := parameterCases[typed.Name]
			usual, _, err := compile(t, typed, tt.base)
			require.NoError(t, err)
			results := map[string]string{usual: "the base"}
			for path, text := range tt.changes {
				result, _, err := compile(t, typed, text)
				require.NoError(t, err, path)
				assert.Empty(t, results[result], "%s has the same result as %s", path, results[result])
				results[result] = path
			}
			for path, text := range tt.noEffect {
				_, warnings, err := compile(t, typed, text)
				require.NoError(t, err, path)
				assert.NotEmpty(t, warnings, path)
			}
			for path, text := range tt.refused {
				_, _, err := compile(t, typed, text)
				require.Error(t, err, path)
			}
			covered := slices.Concat(slices.Collect(maps.Keys(tt.changes)), slices.Collect(maps.Keys(tt.noEffect)), slices.Collect(maps.Keys(tt.refused)))
			slices.Sort(covered)
			paths := parameterPaths("", reflect.TypeOf(typed.New(Environment{})).Elem())
			slices.Sort(paths)
			assert.Equal(t, paths, slices.Compact(covered), "each parameter needs a text that shows its effect")
		})
	}
}

// parameterPaths returns the paths of all parameters of a struct.
func parameterPaths(path string, typ reflect.Type) []string {
	switch {
	case reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()), typ == reflect.TypeFor[strictyaml.Raw]():
		return []string{path}
	case typ.Kind() == reflect.Pointer:
		return parameterPaths(path, typ.Elem())
	case typ.Kind() == reflect.Slice && typ.Elem().Kind() == reflect.Struct:
		return parameterPaths(path+"[]", typ.Elem())
	case typ.Kind() != reflect.Struct || path != "" && typ.NumField() == 0:
		return []string{path}
	}
	var paths []string
	for _, f := range strictyaml.Fields(typ) {
		paths = append(paths, parameterPaths(strings.TrimPrefix(path+"."+f.Name, "."), f.Type)...)
	}
	return paths
}

// compile returns all results of a plugin on random pools, and the settings that it makes.
func compile(t *testing.T, typed Type, parameters string) (result string, warnings []strictyaml.Problem, err error) {
	t.Helper()
	p := typed.New(Environment{StaleAfter: time.Second, Source: modelserver.DefaultSettings().Source})
	document, err := strictyaml.Parse([]byte(cmp.Or(parameters, "{}")), strictyaml.Options{MaxBytes: 1 << 10})
	require.NoError(t, err)
	document.Decode(p)
	c := document.Checker("")
	p.Validate(&Check{Checker: c, Plugins: noPlugins{}})
	if document.AllProblems() != nil {
		return "", nil, document.AllProblems()
	}
	parts := &Parts{}
	parts.Scraping.Extractor = attributeExtractor
	if i, ok := p.(Installer); ok {
		i.ApplyTo(&Builder{Checker: c, Reference: c, Parts: parts})
	}
	var s strings.Builder
	if parts.Sessions != nil {
		fmt.Fprintf(&s, "%+v", parts.Sessions.settings)
	}
	if d := parts.Discovery; d != nil {
		fmt.Fprintf(&s, "%+v", *d)
	}
	scraping := parts.Scraping
	fmt.Fprintf(&s, "%+v %+v %v %v\n", parts.Prefix, scraping.Extractor, parts.ParserNames, parts.Headers)
	for _, f := range strictyaml.Fields(reflect.TypeOf(scraping.Source)) {
		if value := reflect.Indirect(reflect.ValueOf(scraping.Source).FieldByIndex(f.Index)); value.IsValid() {
			fmt.Fprintf(&s, "%s=%v ", f.Name, value)
		}
	}
	play(&s, p)
	return s.String(), document.Warnings(), document.AllProblems()
}

// play runs a plugin on random pools.
func play(s *strings.Builder, p Plugin) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r := &pickRequest{Now: noon, Random: random.Uint64(), Model: "a", Tokens: 1000, Prefix: random.Uint64(), Headers: api.Headers{}}
		candidates := realistic(1 + random.IntN(12))
		for i := range candidates {
			c := &candidates[i]
			c.Matched = random.IntN(1100)
			c.Server.Labels = map[string]string{"gpu": string(rune('a' + random.IntN(2)))}
			if random.IntN(3) == 0 {
				c.Server.Labels = map[string]string{"zone": string(rune('a' + random.IntN(2)))}
			}
			c.Load = load{
				Requests: float64(random.IntN(12)), Open: float64(random.IntN(5)), Tokens: 1e6 * random.Float64() * random.Float64() * random.Float64(), Waiting: float64(random.IntN(10)), Running: float64(random.IntN(10)),
				KVUsage: random.Float64(), Wait: 0.01 + random.Float64(), Failing: endpoint.ToMonotonic(noon.Add(-time.Duration(random.IntN(5)) * time.Second)),
			}
			if random.IntN(4) > 0 {
				c.Load.Page = &page{Attributes: map[string]float64{"t": 100 * random.Float64()}}
			}
		}
		scores := make([]float64, len(candidates))
		switch p := p.(type) {
		case scheduling.Scorer:
			p.Score(r, candidates, scores)
			fmt.Fprintln(s, scores)
		case scheduling.Picker:
			for i := range scores {
				scores[i] = random.Float64()
			}
			fmt.Fprintln(s, p.Pick(r, scores, nil))
		}
		if d, ok := p.(scheduling.Detector); ok {
			fmt.Fprintln(s, d.Saturation(r.Now, candidates))
		}
		if f, ok := p.(scheduling.Filter); ok {
			fmt.Fprintln(s, indexes(f.Filter(r, candidates)))
		}
	}
}

// onePlugin declares one plugin.
type onePlugin struct {
	name, typeName string
	plugin         Plugin
}

func (o onePlugin) Declares(name string) bool { return name == o.name }

func (o onePlugin) Refer(name, typeName string) (Plugin, bool) {
	return o.plugin, name == o.name && typeName == o.typeName
}

func TestSessionSourcesOfAProducer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		producer sessionIDProducer
		want     sessionIDHeader
	}{
		{producer: sessionIDProducer{HeaderName: "X-Chat"}, want: sessionIDHeader{header: "x-chat"}},
		{producer: sessionIDProducer{CookieName: "Chat"}, want: sessionIDHeader{header: "cookie", cookie: "Chat"}},
	} {
		p := defaultSessionAffinity()
		p.Strategy, p.ByID.Sources = sessionByID, []sessionIDSource{{Attribute: sessionIDAttribute, Producer: "mine"}}
		var c strictyaml.Checker
		p.Validate(&Check{Checker: &c, Plugins: onePlugin{"mine", typeSessionIDProducer, &tt.producer}})
		require.NoError(t, c.AllProblems())
		assert.Equal(t, []sessionIDHeader{tt.want}, p.settings.sources)
	}
}
