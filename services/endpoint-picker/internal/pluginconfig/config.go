// Package pluginconfig reads the EndpointPickerConfig: the plugins that choose endpoints, their parameters, and the metrics
// to scrape.
//
// Load converts a text to a Config or to all its problems, each with its line and its fix. The format is that of the llm-d
// router and of the Inference Extension, in all apiVersions. Parsing is strict: an unknown field is an error, and so is a plugin that
// this picker does not have, with its replacement. An accepted text is compiled: names are resolved, defaults are filled in, and every
// plugin is made. A Config never changes.
//
// The package knows the sections of a configuration and the registry of plugins (package plugins), but no plugin. It reads no
// files and has no clock: the same text gives the same Config.
package pluginconfig

import (
	"time"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/api"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/pool"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
	"fairlead.dev/services/endpoint-picker/internal/scheduling/plugins"
)

// MaxBytes is the maximum size of a text: that of a ConfigMap.
const MaxBytes = 1 << 20

// Options are external settings for configurations.
type Options struct {
	StaleAfter time.Duration // time without a valid sample after which an endpoint's values are stale
	// Source describes metrics pages where a configuration does not; the zero value is modelserver.DefaultSettings().
	Source modelserver.Source
	// DefaultEngine is the engine of endpoints without a label for it, where a configuration names none; empty is vLLM.
	DefaultEngine string
	// EndpointsGiven means that the flags name the source of endpoints, so that a file-discovery has no effect.
	EndpointsGiven bool
	// Previous is the configuration in force; nil at start. A new one keeps the state of its plugins where their parameters
	// are the same, and must not change settings that need a restart.
	Previous *Config
}

// A Config is a valid configuration. It must not be changed.
type Config struct {
	plugins.Parts

	Hash       string               // of the text, in hexadecimal; "default" for the default
	Profile    *scheduling.Profile  // how endpoints are chosen
	Saturation scheduling.Detector  // requests of negative priority are refused at 1 or more
	Waiting    pool.QueueLimits     // of requests that wait for an endpoint
	Parsers    *api.Parsers         // of bodies
	Warnings   []strictyaml.Problem // settings without effect, and renamed ones
}

// defaultText is the default configuration. Servers that only encode or prefill cannot answer requests. In contrast to
// decode-filter, the filter keeps unknown roles: an upgrade must not empty a pool with roles of its own.
const defaultText = `apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- name: answering-servers
  type: label-selector-filter
  parameters:
    matchExpressions: [{key: llm-d.ai/role, operator: NotIn, values: [encode, prefill, encode-prefill]}]
- type: predicted-wait-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: answering-servers
  - pluginRef: predicted-wait-scorer
`
