package pluginconfig

import (
	"maps"
	"time"

	"fairlead.dev/pkg/strictyaml"
)

// API versions and kind of a configuration.
const (
	apiVersion = "llm-d.ai/v1"
	kindName   = "EndpointPickerConfig"
)

// olderVersions are the other API versions. A configuration may have the fields of any version.
var olderVersions = []string{"llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1"}

// document is an EndpointPickerConfig in its written form.
type document struct {
	APIVersion         string         `yaml:"apiVersion"`
	Kind               string         `yaml:"kind"`
	FeatureGates       []string       `yaml:"featureGates,omitempty"`
	Plugins            []pluginSpec   `yaml:"plugins,omitempty"`
	SchedulingProfiles []profileSpec  `yaml:"schedulingProfiles,omitempty"`
	DataLayer          *dataLayerSpec `yaml:"dataLayer,omitempty"`
	Data               *dataLayerSpec `yaml:"data,omitempty"` // its name in the Inference Extension 1.3 and 1.4
	FlowControl        *flowSpec      `yaml:"flowControl,omitempty"`
	RequestHandler     *handlerSpec   `yaml:"requestHandler,omitempty"`
	SaturationDetector *detectorSpec  `yaml:"saturationDetector,omitempty"`
	Parser             *referenceSpec `yaml:"parser,omitempty"`
}

type pluginSpec struct {
	Name       string         `yaml:"name,omitempty"`
	Type       string         `yaml:"type"`
	Parameters strictyaml.Raw `yaml:"parameters,omitempty"`
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

// detectorSpec refers to a saturation detector, or has the parameters of the default one, as in the Inference Extension 1.2 to 1.4.
type detectorSpec struct {
	PluginRef                 string         `yaml:"pluginRef,omitempty"`
	QueueDepthThreshold       strictyaml.Raw `yaml:"queueDepthThreshold,omitempty"`
	KVCacheUtilThreshold      strictyaml.Raw `yaml:"kvCacheUtilThreshold,omitempty"`
	MetricsStalenessThreshold strictyaml.Raw `yaml:"metricsStalenessThreshold,omitempty"`
}

// parameterFields returns the parameters in the text, by their names.
func (s *detectorSpec) parameterFields() map[string]strictyaml.Raw {
	given := map[string]strictyaml.Raw{
		"queueDepthThreshold": s.QueueDepthThreshold, "kvCacheUtilThreshold": s.KVCacheUtilThreshold,
		"metricsStalenessThreshold": s.MetricsStalenessThreshold,
	}
	maps.DeleteFunc(given, func(_ string, r strictyaml.Raw) bool { return !r.IsSet() })
	return given
}

type dataLayerSpec struct {
	InjectDefaults              *bool          `yaml:"injectDefaults,omitempty"`
	Sources                     []sourceSpec   `yaml:"sources,omitempty"`
	Discovery                   *discoverySpec `yaml:"discovery,omitempty"`
	PeerDiscovery               strictyaml.Raw `yaml:"peerDiscovery,omitempty"`
	CrossReplica                strictyaml.Raw `yaml:"crossReplica,omitempty"`
	CrossReplicaSyncerPluginRef strictyaml.Raw `yaml:"crossReplicaSyncerPluginRef,omitempty"`
	CrossReplicaSyncInterval    strictyaml.Raw `yaml:"crossReplicaSyncInterval,omitempty"`
	CrossReplicaPublishTimeout  strictyaml.Raw `yaml:"crossReplicaPublishTimeout,omitempty"`
}

type discoverySpec struct {
	Endpoints *referenceSpec `yaml:"endpoints,omitempty"`
	PluginRef string         `yaml:"pluginRef,omitempty"` // its old place
	Peers     strictyaml.Raw `yaml:"peers,omitempty"`
}

type sourceSpec struct {
	PluginRef  string          `yaml:"pluginRef"`
	Extractors []referenceSpec `yaml:"extractors,omitempty"`
}

type handlerSpec struct {
	Parsers           []referenceSpec `yaml:"parsers,omitempty"`
	Parser            *referenceSpec  `yaml:"parser,omitempty"` // of llm-d 0.8
	PropagatePriority bool            `yaml:"propagatePriority,omitempty"`
}

// flowSpec is the flow control section. Of its queue, the part for pools without endpoints is supported.
type flowSpec struct {
	SaturationDetector          *detectorSpec  `yaml:"saturationDetector,omitempty"`
	MaxBytes                    quantity       `yaml:"maxBytes,omitempty"`
	MaxRequests                 quantity       `yaml:"maxRequests,omitempty"`
	DefaultRequestTTL           time.Duration  `yaml:"defaultRequestTTL,omitempty"`
	NoEndpointRequestTTL        time.Duration  `yaml:"noEndpointRequestTTL,omitempty"`
	DefaultPriorityBand         strictyaml.Raw `yaml:"defaultPriorityBand,omitempty"`
	DefaultNegativePriorityBand strictyaml.Raw `yaml:"defaultNegativePriorityBand,omitempty"`
	PriorityBands               strictyaml.Raw `yaml:"priorityBands,omitempty"`
	UsageLimitPolicyPluginRef   strictyaml.Raw `yaml:"usageLimitPolicyPluginRef,omitempty"`
	EnableEviction              strictyaml.Raw `yaml:"enableEviction,omitempty"`
}
