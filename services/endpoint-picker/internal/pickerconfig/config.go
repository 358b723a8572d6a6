// Package pickerconfig reads the EndpointPickerConfig: which plugins choose endpoints, and how, and what is scraped for them.
//
// Load turns a text into a Config or into all that is wrong with it, each with its line and how to mend it. The form is that
// of the llm-d router, in both of its apiVersions, and read strictly: an unknown field is an error, so is a plugin that this
// picker has not, with what to use instead. What is accepted is compiled: names are resolved, defaults are filled in, and
// every plugin is a value of package scheduling. A Config never changes.
//
// The package is pure: it reads no files and has no clock. The same text gives the same Config.
package pickerconfig

import (
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/request"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Options are settings from outside that configurations build on.
type Options struct {
	StaleAfter time.Duration // without a good sample, an endpoint's figures are no longer believed
}

// A Config is a configuration that can be used. It must not be changed.
type Config struct {
	Hash       string              // of the text, in hexadecimal; "default" of the default
	Profile    *scheduling.Profile // how endpoints are chosen
	Session    *Session            // nil if no plugin goes by sessions
	Saturation scheduling.Detector // when requests of negative priority are refused: at 1 and more
	Prefix     Prefix
	Scraping   Scraping
	Discovery  *FileDiscovery   // nil if the endpoints are the InferencePool's
	Parsers    *request.Parsers // of bodies
	Headers    []string         // of requests that plugins read, in lower case, sorted
	Warnings   []Problem        // what has no effect, or has another name now

	summary []byte
}

// Summary returns the configuration written out, with all that was left to defaults. It is itself a text that Load takes,
// and means the same.
func (c *Config) Summary() []byte { return slices.Clone(c.summary) }

// Prefix says what is remembered of prompts.
type Prefix struct {
	MaxTokens      int  // of a prompt that are looked for; 0 for all
	CapacityTokens int  // of a server's cache, as long as that is not known or not asked
	AutoTune       bool // take the capacity from the server's metrics page
}

// Scraping says what is taken from model servers' metrics.
type Scraping struct {
	Enabled       bool
	Source        Source
	EngineLabel   string // of pods, that says which engine their server is
	DefaultEngine string // of pods without the label
	Engines       []Engine
}

// attributes are the names of custom metrics, of any engine.
func (s *Scraping) attributes() []string {
	var names []string
	for _, e := range s.Engines {
		for _, m := range e.CustomMetrics {
			names = append(names, m.AttributeKey)
		}
	}
	return names
}

// A Source is where metrics pages are.
type Source struct {
	Scheme             string
	Path               string
	Port               int // 0 for that of the endpoint
	InsecureSkipVerify bool
	CACertPath         string
	ClientCertPath     string
	ClientKeyPath      string
	Interval           time.Duration // 0 for that of the flag
}

// An Engine is how one kind of model server names its metrics. A spec is name{label=value,...}; what is empty is not read.
// An engine takes the place of a built-in one of its name.
type Engine struct {
	Name                    string         `yaml:"name"`
	QueuedRequestsSpec      string         `yaml:"queuedRequestsSpec,omitempty"`
	RunningRequestsSpec     string         `yaml:"runningRequestsSpec,omitempty"`
	KVUsageSpec             string         `yaml:"kvUsageSpec,omitempty"`
	LoRASpec                string         `yaml:"loraSpec,omitempty"`
	CacheInfoSpec           string         `yaml:"cacheInfoSpec,omitempty"`
	CacheBlockSizeLabelName string         `yaml:"cacheBlockSizeLabelName,omitempty"`
	CacheNumBlocksLabelName string         `yaml:"cacheNumBlocksLabelName,omitempty"`
	CacheBlockSizeSpec      string         `yaml:"cacheBlockSizeSpec,omitempty"`
	CacheNumBlocksSpec      string         `yaml:"cacheNumBlocksSpec,omitempty"`
	CustomMetrics           []CustomMetric `yaml:"customMetrics,omitempty"`
}

// A CustomMetric is a figure of the page that plugins refer to.
type CustomMetric struct {
	AttributeKey string `yaml:"attributeKey"`
	MetricSpec   string `yaml:"metricSpec"`
}

// FileDiscovery is a file that lists the endpoints.
type FileDiscovery struct {
	Path  string
	Watch bool
}

// defaultText is the configuration that holds without any.
const defaultText = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: predicted-wait-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: predicted-wait-scorer
`
