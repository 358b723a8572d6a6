package pickerconfig

import (
	"fmt"
	"time"
)

// API versions and kind of a configuration.
const (
	apiVersion       = "llm-d.ai/v1alpha1"
	legacyAPIVersion = "inference.networking.x-k8s.io/v1alpha1"
	kindName         = "EndpointPickerConfig"
)

// document is an EndpointPickerConfig in its written form.
type document struct {
	APIVersion         string         `yaml:"apiVersion"`
	Kind               string         `yaml:"kind"`
	FeatureGates       []string       `yaml:"featureGates,omitempty"`
	Plugins            []pluginSpec   `yaml:"plugins,omitempty"`
	SchedulingProfiles []profileSpec  `yaml:"schedulingProfiles,omitempty"`
	DataLayer          *dataLayerSpec `yaml:"dataLayer,omitempty"`
	FlowControl        *flowSpec      `yaml:"flowControl,omitempty"`
	RequestHandler     *handlerSpec   `yaml:"requestHandler,omitempty"`
	SaturationDetector *referenceSpec `yaml:"saturationDetector,omitempty"`
	Parser             *referenceSpec `yaml:"parser,omitempty"`
}

type pluginSpec struct {
	Name       string `yaml:"name,omitempty"`
	Type       string `yaml:"type"`
	Parameters raw    `yaml:"parameters,omitempty"`
}

type profileSpec struct {
	Name    string          `yaml:"name"`
	Plugins []profilePlugin `yaml:"plugins"`
}

type profilePlugin struct {
	PluginRef string   `yaml:"pluginRef"`
	Weight    *float64 `yaml:"weight,omitempty"`
}

type referenceSpec struct {
	PluginRef string `yaml:"pluginRef"`
}

type dataLayerSpec struct {
	InjectDefaults              *bool          `yaml:"injectDefaults,omitempty"`
	Sources                     []sourceSpec   `yaml:"sources,omitempty"`
	Discovery                   *referenceSpec `yaml:"discovery,omitempty"`
	PeerDiscovery               raw            `yaml:"peerDiscovery,omitempty"`
	CrossReplicaSyncerPluginRef raw            `yaml:"crossReplicaSyncerPluginRef,omitempty"`
	CrossReplicaSyncInterval    raw            `yaml:"crossReplicaSyncInterval,omitempty"`
}

type sourceSpec struct {
	PluginRef  string          `yaml:"pluginRef"`
	Extractors []referenceSpec `yaml:"extractors,omitempty"`
}

type handlerSpec struct {
	Parsers []referenceSpec `yaml:"parsers,omitempty"`
}

// flowSpec is the flow control section. Only its saturation detector is supported.
type flowSpec struct {
	SaturationDetector          *referenceSpec `yaml:"saturationDetector,omitempty"`
	MaxBytes                    raw            `yaml:"maxBytes,omitempty"`
	MaxRequests                 raw            `yaml:"maxRequests,omitempty"`
	DefaultRequestTTL           raw            `yaml:"defaultRequestTTL,omitempty"`
	NoEndpointRequestTTL        raw            `yaml:"noEndpointRequestTTL,omitempty"`
	DefaultPriorityBand         raw            `yaml:"defaultPriorityBand,omitempty"`
	DefaultNegativePriorityBand raw            `yaml:"defaultNegativePriorityBand,omitempty"`
	PriorityBands               raw            `yaml:"priorityBands,omitempty"`
	UsageLimitPolicyPluginRef   raw            `yaml:"usageLimitPolicyPluginRef,omitempty"`
	EnableEviction              raw            `yaml:"enableEviction,omitempty"`
}

// duration is a duration such as 50ms or 1m30s.
type duration time.Duration

// UnmarshalText parses a duration.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.100q is not a duration: give one such as 200ms or 1m30s", text)
	}
	*d = duration(parsed)
	return nil
}

// MarshalText formats a duration.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }
