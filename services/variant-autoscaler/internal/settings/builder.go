package settings

import (
	"cmp"
	"maps"
)

// DefaultNamespace returns the namespace of the ConfigMaps without a flag: that of this pod, or else the usual one of the
// workload-variant-autoscaler.
func DefaultNamespace(environment func(name string) string) string {
	return cmp.Or(environment("POD_NAMESPACE"), "workload-variant-autoscaler-system")
}

// Options of a Builder.
type Options struct {
	Namespace string // of the ConfigMaps
	// Names are the names of the ConfigMaps of some kinds. The others have the names that Select looks for.
	Names map[Kind]string
	// Environment returns environment variables, which override the keys of the optimization config with the same names: WVA_SCALE_TO_ZERO
	// and PROMETHEUS_*. Nil: there are none.
	Environment func(name string) string
	// AllowHTTP allows a Prometheus without TLS.
	AllowHTTP bool
}

// Builder makes Settings from ConfigMaps. It keeps what later ConfigMaps cannot replace: the address of Prometheus, and valid limits. One
// goroutine at a time may use it.
type Builder struct {
	options         Options
	current         Settings
	prometheusFixed bool // the address of Prometheus
}

// NewBuilder returns a Builder of the settings that are in force without any ConfigMap.
func NewBuilder(o Options) *Builder {
	if o.Environment == nil {
		o.Environment = func(string) string { return "" }
	}
	b := &Builder{options: o, current: Settings{present: map[Kind]string{}}}
	for _, kind := range Kinds() {
		b.SetSources(kind)
	}
	b.prometheusFixed = false // a ConfigMap that exists from the start may add to the environment
	return b
}

// FixPrometheus keeps the address of Prometheus and its certificates from now on, if there is an address.
func (b *Builder) FixPrometheus() {
	b.prometheusFixed = b.current.optimization.prometheus.BaseURL != ""
}

// Settings returns the settings in force.
func (b *Builder) Settings() *Settings {
	s := b.current
	s.present = maps.Clone(s.present)
	return &s
}

// Source is the content of a ConfigMap.
type Source struct {
	Name string
	Data map[string]string
}

// SetSources puts the ConfigMap of a kind in force, or none, and returns its problems, at most a dozen. Classes may have several.
func (b *Builder) SetSources(kind Kind, sources ...Source) []Warning {
	var w warnings
	var data map[string]string
	delete(b.current.present, kind)
	if len(sources) > 0 {
		b.current.present[kind], data = sources[0].Name, sources[0].Data
	}
	switch kind {
	case Optimization:
		b.setOptimization(len(sources) > 0, data, &w)
	case Accelerators:
		b.current.prices = parsePrices(data, &w)
	case Classes:
		b.current.classes = parseClasses(sources, &w)
	case Zero:
		b.current.zero = parseZero(data, &w)
	case Saturation:
		b.current.saturation = parseSaturation(data, &w)
	case Limits:
		b.current.limits = parseLimits(data, b.current.limits.entries, &w)
	}
	return w.asList()
}

// setOptimization keeps the address of Prometheus once there is one.
func (b *Builder) setOptimization(present bool, data map[string]string, w *warnings) {
	next, before := parseOptimization(data, b.options, w), b.current.optimization.prometheus
	switch {
	case b.prometheusFixed && !present:
		next.prometheus = before
	case b.prometheusFixed:
		next.prometheus = before.keepFixed(next.prometheus, w)
	default:
		b.prometheusFixed = next.prometheus.BaseURL != ""
	}
	b.current.optimization = next
}
