// Package plugins contains the plugins that a configuration can name.
//
// Each has one file: the algorithm, the parameters and their validation. The struct with the parameters is the plugin itself:
// filters, scorers, pickers and detectors implement the interfaces of package scheduling on it. So no second struct repeats the
// parameters. To add a plugin, write its file, and add its Type with the default parameters to Types.
//
// Like package scheduling, the package neither waits nor reads clocks or files.
package plugins

import (
	"maps"
	"slices"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/api"
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

// Types returns all types, sorted by their names. Defaults are upstream's, where upstream has the type.
func Types() []Type { //nolint:funlen // a table
	return []Type{
		{Name: "active-request-scorer", Section: SectionProfile, New: withDefaults(activeRequestScorer{MaxBusyScore: 1})},
		parserType(api.ParserAnthropic),
		{Name: typeApproxPrefixCacheProducer, OnlyOne: onlyOneIndex, New: withDefaults(defaultPrefixProducer())},
		{Name: "by-label", Section: SectionProfile, Identity: true, ReplacedBy: typeLabelSelectorFilter, New: withDefaults(byLabel{})},
		{
			Name: "concurrency-detector", Section: SectionSaturation,
			New: withDefaults(concurrencyDetector{
				ConcurrencyMode: concurrencyRequests, MaxConcurrency: 100, MaxTokenConcurrency: 1_000_000,
			}),
		},
		// A lower factor moves more requests away from their caches, a higher one lets queues differ more. 1.25 is the usual
		// factor of consistent hashing with bounded loads, as in KubeAI.
		{Name: "consistent-hash-scorer", Section: SectionProfile, New: withDefaults(consistentHashScorer{LoadFactor: 1.25})},
		{
			Name: typeCoreMetricsExtractor, Aliases: []string{"model-server-protocol-metrics"}, Section: SectionExtractors, Default: true,
			New: newCoreMetricsExtractor,
		},
		roleFilterType("decode-filter", roleFilter{
			roles: []string{roleDecode, rolePrefillDecode, roleBoth, roleEncodePrefillDecode}, withoutRole: true,
		}),
		roleFilterType("encode-filter", roleFilter{roles: []string{roleEncode, roleEncodePrefill, roleEncodePrefillDecode}}),
		{
			Name: "endpoint-attribute-filter", Section: SectionProfile,
			New: withDefaults(endpointAttributeFilter{OnMissing: missingPass}),
		},
		{Name: "endpoint-attribute-scorer", Section: SectionProfile, New: withDefaults(endpointAttributeScorer{})},
		{Name: "file-discovery", Section: SectionDiscovery, New: withDefaults(FileDiscovery{})},
		{Name: "header-based-testing-filter", Section: SectionProfile, Identity: true, New: withDefaults(headerBasedTestingFilter{})},
		{Name: typeInflightLoadProducer, New: withDefaults(inflightLoadProducer{})},
		{
			Name: "kv-cache-utilization-scorer", Aliases: []string{"kv-cache-scorer"}, Section: SectionProfile,
			New: withDefaults(kvCacheUtilizationScorer{}),
		},
		{
			Name: typeLabelSelectorFilter, Aliases: []string{"by-label-selector"}, Section: SectionProfile, Identity: true,
			New: withDefaults(labelSelectorFilter{}),
		},
		{Name: "load-aware-scorer", Section: SectionProfile, New: withDefaults(loadAwareScorer{Threshold: 128})},
		{Name: "lora-affinity-scorer", Section: SectionProfile, New: withDefaults(loraAffinityScorer{})},
		{Name: "max-score-picker", Section: SectionProfile, Default: true, New: withDefaults(maxScorePicker{onePick()})},
		{Name: "metrics-data-source", Section: SectionSources, Default: true, New: newMetricsDataSource},
		parserType(api.ParserOpenAI),
		parserType(api.ParserPassthrough),
		{Name: PredictedWaitScorer, Section: SectionProfile, New: withDefaults(predictedWaitScorer{})},
		roleFilterType("prefill-filter", roleFilter{
			roles: []string{rolePrefill, roleEncodePrefill, rolePrefillDecode, roleBoth, roleEncodePrefillDecode},
		}),
		{
			Name: "prefix-cache-affinity-filter", Section: SectionProfile,
			New: withDefaults(prefixCacheAffinityFilter{
				AffinityThreshold: 0.8, MaxTTFTPenaltyMs: 18_000, TTFTSource: ttftFromLoad, PeakPrefillThroughput: 15_928,
			}),
		},
		{Name: typePrefixCacheScorer, Section: SectionProfile, New: withDefaults(prefixCacheScorer{MatchLengthScaleTokens: 8192})},
		{Name: "queue-scorer", Section: SectionProfile, New: withDefaults(queueScorer{})},
		{Name: "random-picker", Section: SectionProfile, IgnoresScores: true, New: withDefaults(randomPicker{onePick()})},
		{Name: "running-requests-size-scorer", Section: SectionProfile, New: withDefaults(runningRequestsSizeScorer{})},
		{Name: "session-affinity-filter", Section: SectionProfile, New: withDefaults(sessionAffinityFilter{defaultSessionAffinity()})},
		{Name: "session-affinity-scorer", Section: SectionProfile, New: withDefaults(sessionAffinityScorer{defaultSessionAffinity()})},
		{Name: typeSessionIDProducer, Section: SectionSessions, New: withDefaults(sessionIDProducer{})},
		parserType(api.ParserSGLang),
		{Name: "single-profile-handler", New: withDefaults(noParameters{})}, // the picker runs the only profile anyway
		{Name: "token-load-scorer", Section: SectionProfile, New: withDefaults(tokenLoadScorer{QueueThresholdTokens: 4 << 20})},
		{Name: "token-producer", Aliases: []string{"tokenizer"}, New: withDefaults(tokenProducer{})},
		{Name: "utilization-detector", Section: SectionSaturation, Default: true, New: newUtilizationDetector},
		{Name: "utilization-filter", Section: SectionProfile, New: withDefaults(utilizationFilter{})},
		parserType(api.ParserVLLMGRPC),
		parserType(api.ParserVLLM),
		{Name: "weighted-random-picker", Section: SectionProfile, New: withDefaults(weightedRandomPicker{onePick()})},
	}
}

// withDefaults returns the New of a type whose default parameters are the same in all processes.
func withDefaults[T any, P interface {
	*T
	Plugin
}](defaults T) func(Environment) Plugin {
	return func(Environment) Plugin {
		p := defaults
		return P(&p)
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
