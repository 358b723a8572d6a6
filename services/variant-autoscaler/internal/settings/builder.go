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
	// Names are the names of the ConfigMaps of a kind, if they are not those of Kind.Names. The first that exists is in force.
	Names map[Kind][]string
	// Environment returns environment variables, which override the keys of the optimization config with the same names: WVA_SCALE_TO_ZERO
	// and PROMETHEUS_*. Nil: there are none.
	Environment func(name string) string
	// AllowHTTP allows a Prometheus without TLS.
	AllowHTTP bool
}

// NamesOf returns the names of the ConfigMaps of a kind.
func (o Options) NamesOf(kind Kind) []string {
	if names := o.Names[kind]; len(names) > 0 {
		return names
	}
	return kind.Names()
}

// Builder makes Settings from ConfigMaps. It keeps what later ConfigMaps cannot replace: the address of Prometheus, and valid limits. One
// goroutine at a time may use it.
type Builder struct {
	options Options
	now     Settings
	fixed   bool // the address of Prometheus
}

// NewBuilder returns a Builder of the settings that are in force without any ConfigMap.
func NewBuilder(o Options) *Builder {
	if o.Environment == nil {
		o.Environment = func(string) string { return "" }
	}
	b := &Builder{options: o, now: Settings{required: map[Kind]string{}, present: map[Kind]string{}}}
	for _, kind := range Kinds() {
		b.now.required[kind] = o.Namespace + "/" + o.NamesOf(kind)[0]
		b.Set(kind, "", nil)
	}
	return b
}

// Settings returns the settings in force.
func (b *Builder) Settings() *Settings {
	s := b.now
	s.present = maps.Clone(s.present)
	return &s
}

// Set puts the content of a ConfigMap in force, and returns its problems, at most a dozen. An empty name means that there is no
// ConfigMap of this kind.
func (b *Builder) Set(kind Kind, name string, data map[string]string) []Warning {
	var w warnings
	if name == "" {
		delete(b.now.present, kind)
		data = nil
	} else {
		b.now.present[kind] = name
	}
	switch kind {
	case Optimization:
		b.setOptimization(name != "", data, &w)
	case Accelerators:
		b.now.prices = parsePrices(data, &w)
	case Classes:
		b.now.classes = parseClasses(data, &w)
	case Zero:
		b.now.zero = parseZero(data, &w)
	case Saturation:
		b.now.saturation = parseSaturation(data, &w)
	case Limits:
		b.now.limits = parseLimits(data, b.now.limits.entries, &w)
	}
	return w.list()
}

// setOptimization keeps the address of Prometheus once there is one.
func (b *Builder) setOptimization(present bool, data map[string]string, w *warnings) {
	next, before := parseOptimization(data, b.options, w), b.now.optimization.prometheus
	switch {
	case b.fixed && !present:
		next.prometheus = before
	case b.fixed:
		next.prometheus = before.keepFixed(next.prometheus, w)
	default:
		b.fixed = next.prometheus.BaseURL != ""
	}
	b.now.optimization = next
}
