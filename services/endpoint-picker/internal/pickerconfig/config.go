// Package pickerconfig reads the EndpointPickerConfig: the plugins that choose endpoints, their parameters, and the metrics
// to scrape.
//
// Load converts a text to a Config or to all its problems, each with its line and its fix. The format is that of the llm-d
// router, in both of its apiVersions. Parsing is strict: an unknown field is an error, and so is a plugin that this picker
// does not have, with its replacement. An accepted text is compiled: names are resolved, defaults are filled in, and every
// plugin is a value of package scheduling. A Config never changes.
//
// The package is pure: it reads no files and has no clock. The same text gives the same Config.
package pickerconfig

import (
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Options are external settings for configurations.
type Options struct {
	StaleAfter time.Duration // time without a valid sample after which an endpoint's values are stale
}

// A Config is a valid configuration. It must not be changed.
type Config struct {
	Hash       string              // of the text, in hexadecimal; "default" for the default
	Profile    *scheduling.Profile // how endpoints are chosen
	Session    *Session            // nil if no plugin uses sessions
	Saturation scheduling.Detector // requests of negative priority are refused at 1 or more
	Prefix     Prefix
	Scraping   Scraping
	Discovery  *FileDiscovery // nil if the endpoints are the InferencePool's
	Parsers    *api.Parsers   // of bodies
	Headers    []string       // request headers that plugins read, in lower case, sorted
	Warnings   []Problem      // settings without effect, and renamed ones

	summary []byte
}

// Summary returns the configuration with all defaults written out. Load accepts it, with the same result.
func (c *Config) Summary() []byte { return slices.Clone(c.summary) }

// Prefix configures the index of prefixes.
type Prefix struct {
	MaxTokens      int  // length of a prompt to look up; 0 for all
	CapacityTokens int  // of a server's cache, while it is unknown or not read
	AutoTune       bool // take the capacity from the server's metrics page
}

// Scraping configures the metrics of model servers.
type Scraping struct {
	Enabled       bool
	Source        Source
	EngineLabel   string // label of pods that names the engine of their server
	DefaultEngine string // for pods without the label
	Engines       []Engine
}

// attributes returns the names of custom metrics of all engines.
func (s *Scraping) attributes() []string {
	var names []string
	for _, e := range s.Engines {
		for _, m := range e.CustomMetrics {
			names = append(names, m.AttributeKey)
		}
	}
	return names
}

// A Source is the address of metrics pages.
type Source struct {
	Scheme             string
	Path               string
	Port               int // 0 for the endpoint's port
	InsecureSkipVerify bool
	CACertPath         string
	ClientCertPath     string
	ClientKeyPath      string
	Interval           time.Duration // 0 for the flag's value
}

// An Engine names the metrics of one kind of model server. A spec is name{label=value,...}; an empty one is not read. An
// engine replaces a built-in one with its name.
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

// A CustomMetric is a value of the page that plugins refer to.
type CustomMetric struct {
	AttributeKey string `yaml:"attributeKey"`
	MetricSpec   string `yaml:"metricSpec"`
}

// FileDiscovery is a file that lists the endpoints.
type FileDiscovery struct {
	Path  string
	Watch bool
}

// defaultText is the default configuration.
const defaultText = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: predicted-wait-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: predicted-wait-scorer
`
