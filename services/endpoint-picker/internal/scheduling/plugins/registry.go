// Package plugins contains the plugins that a configuration can name.
//
// Each has one file: the algorithm, the parameters with their defaults and their validation, and the Type for the registry.
// The struct with the parameters is the plugin itself: filters, scorers, pickers and detectors implement the interfaces of
// package scheduling on it. So no second struct repeats the parameters. To add a plugin, write its file, and add its Type to
// Types.
//
// Like package scheduling, the package neither waits nor reads clocks or files.
package plugins

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/modelserver"
)

// A Plugin is one plugin of a configuration: a pointer to a struct with a yaml tag for each parameter.
type Plugin interface {
	// Validate checks the parameters after they were read, and derives from them what the plugin needs later.
	Validate(c *Check)
}

// An Installer is a plugin that sets parts of the configuration, beyond its place in the profile.
type Installer interface {
	Plugin

	// ApplyTo is called when the configuration uses the plugin.
	ApplyTo(b *Builder)
}

// A Type is one type of plugins.
type Type struct {
	Name    string
	Aliases []string // old names
	Section Section
	// Default means that a plugin of the type exists without a declaration, where its section names none.
	Default bool
	// Identity means that a filter keeps endpoints by what they are, and not by their state. Such filters at the start of a
	// profile precede the preference for endpoints with fresh metrics.
	Identity bool
	// IgnoresScores means that a picker needs no scorers.
	IgnoresScores bool
	// OnlyOne is the reason why a configuration can have only one plugin of the type. Empty: it can have several.
	OnlyOne string
	// ReplacedBy is the type to use instead, if this one is deprecated.
	ReplacedBy string
	// New returns a plugin with the default parameters.
	New func(Environment) Plugin
}

// Environment contains the settings of the process that plugins need.
type Environment struct {
	StaleAfter    time.Duration      // time of failing scrapes after which an endpoint's values are stale
	Source        modelserver.Source // of metrics pages, where the configuration does not set it
	DefaultEngine string             // of model servers, where the configuration does not set it; empty is vLLM
}

// A Section is the part of a configuration that refers to plugins of a type.
type Section string

// The sections.
const (
	SectionProfile    Section = "the plugins of schedulingProfiles"
	SectionSaturation Section = "flowControl.saturationDetector"
	SectionSources    Section = "dataLayer.sources"
	SectionExtractors Section = "the extractors of dataLayer.sources"
	SectionDiscovery  Section = "dataLayer.discovery"
	SectionParsers    Section = "requestHandler.parsers"
	SectionSessions   Section = "sessionIdConfig.sources of a session affinity plugin"
	SectionNone       Section = "" // plugins that need no reference
)

// Page is the section of the documentation with all types.
const Page = "docs/services/endpoint-picker-configuration.md"

// Reason says which reference has an effect on a plugin.
func (s Section) Reason() string {
	if s == SectionNone {
		return "it works without a reference"
	}
	return "only a reference in " + string(s) + " has an effect"
}

// Types returns all types, sorted by their names.
func Types() []Type {
	return []Type{
		activeRequestScorerType,
		anthropicParserType,
		approxPrefixCacheProducerType,
		byLabelType,
		concurrencyDetectorType,
		consistentHashScorerType,
		coreMetricsExtractorType,
		decodeFilterType,
		encodeFilterType,
		endpointAttributeFilterType,
		endpointAttributeScorerType,
		fileDiscoveryType,
		headerBasedTestingFilterType,
		inflightLoadProducerType,
		kvCacheUtilizationScorerType,
		labelSelectorFilterType,
		loadAwareScorerType,
		loraAffinityScorerType,
		maxScorePickerType,
		metricsDataSourceType,
		openAIParserType,
		passthroughParserType,
		predictedWaitScorerType,
		prefillFilterType,
		prefixCacheAffinityFilterType,
		prefixCacheScorerType,
		queueScorerType,
		randomPickerType,
		runningRequestsSizeScorerType,
		sessionAffinityFilterType,
		sessionAffinityScorerType,
		sessionIDProducerType,
		sglangParserType,
		singleProfileHandlerType,
		tokenLoadScorerType,
		tokenProducerType,
		utilizationDetectorType,
		utilizationFilterType,
		vllmGRPCParserType,
		vllmParserType,
		weightedRandomPickerType,
	}
}

// FindType returns the type with a name or an old name.
func FindType(name string) (Type, bool) {
	types := Types()
	i := slices.IndexFunc(types, func(t Type) bool { return t.Name == name || slices.Contains(t.Aliases, name) })
	if i < 0 {
		return Type{}, false
	}
	return types[i], true
}

// Defaults returns the types of a section that exist without a declaration.
func Defaults(s Section) []Type {
	return slices.DeleteFunc(Types(), func(t Type) bool { return !t.Default || t.Section != s })
}

// Names returns all names that FindType, Replacement or Unneeded know, sorted.
func Names() []string {
	names := slices.AppendSeq(slices.Collect(maps.Keys(replacements)), maps.Keys(unneeded))
	for _, t := range Types() {
		names = append(names, t.Name)
	}
	slices.Sort(names)
	return names
}

// noParameters is the Validate of plugins without parameters.
type noParameters struct{}

// Validate accepts everything.
func (noParameters) Validate(*Check) {}
