package plugins

import (
	"cmp"
	"slices"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/endpoint-picker/internal/modelserver"
	"fairlead.dev/services/endpoint-picker/internal/scheduling"
)

// Parts are the parts of a configuration that plugins set, other than their places in the profile.
type Parts struct {
	Prefix      PrefixIndex
	Scraping    modelserver.Settings
	Discovery   *FileDiscovery // nil if the configuration names no file of endpoints
	Sessions    *Sessions      // nil if no plugin uses sessions
	ParserNames []string       // of bodies, in order
	Headers     []string       // request headers that plugins read, in lower case, sorted
	// header by which clients choose endpoints; responses then name the endpoint that served. Empty: no such header
	TestHeader string
	Binders    []scheduling.Binder

	producer string       // name of the prefix producer that plugins read
	moved    *PrefixIndex // of a prefix scorer with the parameters of the producer
}

// Declared are the plugins of a configuration.
type Declared interface {
	// Declares reports whether a plugin has the name, whatever its type.
	Declares(name string) bool

	// Refer returns the plugin with a name if it is of the type, and counts it as used.
	Refer(name, typeName string) (Plugin, bool)
}

// A Check validates the parameters of one plugin.
type Check struct {
	*strictyaml.Checker

	Plugins Declared
}

// requireProducer requires the name of a plugin of a type, or nothing. The type's own name is always valid.
func (c *Check) requireProducer(field, name, typeName string) {
	if name == "" || name == typeName && !c.Plugins.Declares(name) {
		return
	}
	_, ok := c.Plugins.Refer(name, typeName)
	c.Require(ok, field, "%.100q is not a plugin of type %s: leave it out", name, typeName)
}

// noEffect warns if the text has the field.
func (c *Check) noEffect(field, reason string) {
	if c.HasField(field) {
		c.Warnf(field, "it has no effect: %s", reason)
	}
}

// A Builder lets a plugin set parts of a configuration.
type Builder struct {
	*strictyaml.Checker // of the plugin's parameters

	Name      string              // of the plugin
	Reference *strictyaml.Checker // of the reference to the plugin
	Parts     *Parts
	Previous  *Parts // of the configuration in force, whose state may be reused; nil at start
}

// wantHeader requests a request header, in lower case, for plugins.
func (b *Builder) wantHeader(name string) {
	if i, found := slices.BinarySearch(b.Parts.Headers, name); !found {
		b.Parts.Headers = slices.Insert(b.Parts.Headers, i, name)
	}
}

// useProducer counts the prefix producer with a name as the one that a plugin reads. The empty name is that of the type. It refuses a
// second one.
func (b *Builder) useProducer(name string) {
	name = cmp.Or(name, typeApproxPrefixCacheProducer)
	other := b.Parts.producer
	b.Require(other == "" || other == name, "prefixMatchInfoProducerName", "it reads %.100q, and another plugin reads %.100q: %s", name,
		other,
		onlyOneIndex)
	b.Parts.producer = name
}

// requireAttribute requires the name of a metric that the extractor reads.
func (b *Builder) requireAttribute(field, name string) {
	b.Require(b.Parts.Scraping.Extractor.HasAttribute(name), field,
		"no extractor reads the metric %.100q: add it to customMetrics of %s", name, typeCoreMetricsExtractor)
}

const missingAttribute = "it is missing: give the attributeKey of one of the extractor's customMetrics"
