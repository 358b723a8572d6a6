package pickerconfig

import (
	"strings"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

type utilizationDetectorParameters struct {
	QueueDepthThreshold       int      `yaml:"queueDepthThreshold"`
	KVCacheUtilThreshold      float64  `yaml:"kvCacheUtilThreshold"`
	MetricsStalenessThreshold duration `yaml:"metricsStalenessThreshold"`
	Headroom                  float64  `yaml:"headroom"`
}

func (p *utilizationDetectorParameters) check(c checker) {
	c.positive("queueDepthThreshold", float64(p.QueueDepthThreshold))
	c.require(p.KVCacheUtilThreshold > 0 && p.KVCacheUtilThreshold <= 1, "kvCacheUtilThreshold", "%v is out of range: give more than 0, at most 1", p.KVCacheUtilThreshold)
	c.positive("metricsStalenessThreshold", time.Duration(p.MetricsStalenessThreshold).Seconds())
	c.notNegative("headroom", p.Headroom)
}

func (p *utilizationDetectorParameters) made() scheduling.UtilizationDetector {
	return scheduling.UtilizationDetector{
		QueueDepth: float64(p.QueueDepthThreshold), KVUsage: p.KVCacheUtilThreshold,
		StaleAfter: time.Duration(p.MetricsStalenessThreshold), Headroom: p.Headroom,
	}
}

func (p *utilizationDetectorParameters) filter() scheduling.Filter     { return p.made() }
func (p *utilizationDetectorParameters) detector() scheduling.Detector { return p.made() }

// Modes of a concurrency-detector.
const (
	concurrencyRequests = "requests"
	concurrencyTokens   = "tokens"
	concurrencyHybrid   = "hybrid"
)

type concurrencyParameters struct {
	ConcurrencyMode          string  `yaml:"concurrencyMode"`
	MaxConcurrency           int     `yaml:"maxConcurrency"`
	MaxTokenConcurrency      int     `yaml:"maxTokenConcurrency"`
	Headroom                 float64 `yaml:"headroom"`
	InFlightLoadProducerName string  `yaml:"inFlightLoadProducerName,omitempty"`
}

func (p *concurrencyParameters) check(c checker) {
	c.oneOf("concurrencyMode", p.ConcurrencyMode, concurrencyRequests, concurrencyTokens, concurrencyHybrid)
	c.positive("maxConcurrency", float64(p.MaxConcurrency))
	c.positive("maxTokenConcurrency", float64(p.MaxTokenConcurrency))
	c.notNegative("headroom", p.Headroom)
	c.producer("inFlightLoadProducerName", p.InFlightLoadProducerName, inflightProducer)
}

func (p *concurrencyParameters) made() scheduling.ConcurrencyDetector {
	d := scheduling.ConcurrencyDetector{Headroom: p.Headroom}
	if p.ConcurrencyMode != concurrencyTokens {
		d.Requests = float64(p.MaxConcurrency)
	}
	if p.ConcurrencyMode != concurrencyRequests {
		d.Tokens = float64(p.MaxTokenConcurrency)
	}
	return d
}

func (p *concurrencyParameters) filter() scheduling.Filter     { return p.made() }
func (p *concurrencyParameters) detector() scheduling.Detector { return p.made() }

type prefixProducerParameters struct {
	AutoTune               bool `yaml:"autoTune"`
	BlockSizeTokens        int  `yaml:"blockSizeTokens"`
	BlockSize              int  `yaml:"blockSize,omitempty"`
	MaxPrefixBlocksToMatch int  `yaml:"maxPrefixBlocksToMatch"`
	MaxPrefixTokensToMatch int  `yaml:"maxPrefixTokensToMatch"`
	LRUCapacityPerServer   int  `yaml:"lruCapacityPerServer"`
}

func defaultPrefixProducer() *prefixProducerParameters {
	return &prefixProducerParameters{AutoTune: true, BlockSizeTokens: blockTokens, MaxPrefixTokensToMatch: 128 << 10, LRUCapacityPerServer: 31_250}
}

// blockTokens is the size of the index's blocks.
const blockTokens = 16

func (p *prefixProducerParameters) check(c checker) {
	if p.BlockSize != 0 {
		c.warnf(c.at("blockSize"), "it is an old name: use blockSizeTokens")
		p.BlockSizeTokens, p.BlockSize = p.BlockSize, 0
	}
	c.count("blockSizeTokens", p.BlockSizeTokens, 1)
	if p.BlockSizeTokens != blockTokens {
		c.warnf(c.at("blockSizeTokens"), "blocks always have %d tokens, like those of model servers; capacities are converted", blockTokens)
	}
	c.count("maxPrefixBlocksToMatch", p.MaxPrefixBlocksToMatch, 0)
	c.count("maxPrefixTokensToMatch", p.MaxPrefixTokensToMatch, 0)
	c.count("lruCapacityPerServer", p.LRUCapacityPerServer, 1)
}

func (p *prefixProducerParameters) prefix() Prefix {
	made := Prefix{MaxTokens: p.MaxPrefixTokensToMatch, CapacityTokens: p.LRUCapacityPerServer * p.BlockSizeTokens, AutoTune: p.AutoTune}
	if made.MaxTokens == 0 {
		made.MaxTokens = p.MaxPrefixBlocksToMatch * p.BlockSizeTokens
	}
	return made
}

type tokenProducerParameters struct {
	ModelName          string `yaml:"modelName,omitempty"`
	VLLM               raw    `yaml:"vllm,omitempty"`
	UDSTokenizerConfig raw    `yaml:"udsTokenizerConfig,omitempty"`
	Estimate           raw    `yaml:"estimate,omitempty"`
}

func (p *tokenProducerParameters) check(c checker) {
	for _, field := range []string{"modelName", "vllm", "udsTokenizerConfig"} {
		c.require(!c.has(c.at(field)), field, "the picker uses no tokenizer, it estimates tokens: leave it out")
	}
	if p.Estimate.node != nil && len(p.Estimate.node.Content) > 0 {
		c.warnf(c.at("estimate"), "it has no effect: the picker has its own estimate of images and sounds")
		p.Estimate = raw{}
	}
}

type inflightParameters struct {
	AddEstimatedOutputTokens    bool    `yaml:"addEstimatedOutputTokens"`
	OutputRatio                 float64 `yaml:"outputRatio"`
	MaxEstimatedOutputTokens    int     `yaml:"maxEstimatedOutputTokens,omitempty"`
	PrefixMatchInfoProducerName string  `yaml:"prefixMatchInfoProducerName,omitempty"`
	SyncCrossReplicaState       bool    `yaml:"syncCrossReplicaState"`
}

func (p *inflightParameters) check(c checker) {
	c.notNegative("outputRatio", p.OutputRatio)
	c.notNegative("maxEstimatedOutputTokens", float64(p.MaxEstimatedOutputTokens))
	c.producer("prefixMatchInfoProducerName", p.PrefixMatchInfoProducerName, approxPrefixProducer)
	if p.AddEstimatedOutputTokens {
		c.warnf(c.at("addEstimatedOutputTokens"), "it has no effect: only prompt tokens count as tokens in flight")
	}
	if p.SyncCrossReplicaState {
		c.warnf(c.at("syncCrossReplicaState"), "it has no effect: replicas see each other's requests in scraped metrics")
	}
}

type sourceParameters struct {
	Scheme             string   `yaml:"scheme"`
	Path               string   `yaml:"path"`
	Port               *int     `yaml:"port,omitempty"`
	InsecureSkipVerify bool     `yaml:"insecureSkipVerify"`
	CACertPath         string   `yaml:"caCertPath,omitempty"`
	ClientCertPath     string   `yaml:"clientCertPath,omitempty"`
	ClientKeyPath      string   `yaml:"clientKeyPath,omitempty"`
	Interval           duration `yaml:"interval,omitempty"`
}

const (
	maxPort     = 65535
	minInterval = 10 * time.Millisecond
)

func (p *sourceParameters) check(c checker) {
	c.oneOf("scheme", p.Scheme, "http", "https")
	c.require(strings.HasPrefix(p.Path, "/"), "path", "%.100q does not begin with /", p.Path)
	c.require(p.Port == nil || *p.Port > 0 && *p.Port <= maxPort, "port", "it is not a port: give one from 1 to %d", maxPort)
	c.require(p.Interval == 0 || time.Duration(p.Interval) >= minInterval, "interval", "%s is too short: give at least %s", time.Duration(p.Interval), minInterval)
	c.require((p.ClientCertPath == "") == (p.ClientKeyPath == ""), "clientCertPath", "give clientCertPath and clientKeyPath, or neither")
	c.require(p.Scheme == "https" || p.CACertPath+p.ClientCertPath == "", "scheme", "certificates have no effect with %.100q: use https or leave them out", p.Scheme)
}

func (p *sourceParameters) source() Source {
	s := Source{
		Scheme: p.Scheme, Path: p.Path, InsecureSkipVerify: p.InsecureSkipVerify, CACertPath: p.CACertPath,
		ClientCertPath: p.ClientCertPath, ClientKeyPath: p.ClientKeyPath, Interval: time.Duration(p.Interval),
	}
	if p.Port != nil {
		s.Port = *p.Port
	}
	return s
}

const (
	engineLabel   = "llm-d.ai/engine-type"
	defaultEngine = "vllm"
	reservedName  = "default"
)

type extractorParameters struct {
	EngineLabelKey string   `yaml:"engineLabelKey"`
	DefaultEngine  string   `yaml:"defaultEngine"`
	EngineConfigs  []Engine `yaml:"engineConfigs,omitempty"`
}

func (p *extractorParameters) check(c checker) {
	c.require(p.EngineLabelKey != "", "engineLabelKey", "it is empty: leave it out for %s", engineLabel)
	c.require(p.DefaultEngine != "", "defaultEngine", "it is empty: leave it out for %s", defaultEngine)
	names := map[string]bool{}
	for i, e := range p.EngineConfigs {
		at := indexed("engineConfigs", i)
		c.require(e.Name != "" && e.Name != reservedName, at+".name", "give the engine a name other than %q", reservedName)
		c.require(!names[e.Name], at+".name", "engine %.100q is listed twice: keep one", e.Name)
		names[e.Name] = true
		attributes := map[string]bool{}
		for j, m := range e.CustomMetrics {
			metric := indexed(at+".customMetrics", j)
			c.require(m.AttributeKey != "" && m.MetricSpec != "", metric, "give both attributeKey and metricSpec")
			c.require(!attributes[m.AttributeKey], metric+".attributeKey", "metric %.100q is listed twice: keep one", m.AttributeKey)
			attributes[m.AttributeKey] = true
		}
	}
}

type fileDiscoveryParameters struct {
	Path      string `yaml:"path"`
	WatchFile bool   `yaml:"watchFile"`
}

func (p *fileDiscoveryParameters) check(c checker) {
	c.require(p.Path != "", "path", "it is missing: give the file that lists the endpoints")
}
