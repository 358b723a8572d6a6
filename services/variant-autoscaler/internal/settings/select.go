package settings

import (
	"fmt"
	"slices"
	"strings"
)

// configMapNames are the names of the ConfigMaps of each kind.
var configMapNames = map[Kind][]string{
	Optimization: {"workload-variant-autoscaler-variantautoscaling-config", "variantautoscaling-config", "wva-variantautoscaling-config",
		"wva-manager-config"},
	Accelerators: {"accelerator-unit-costs"},
	Classes:      {"service-classes-config"},
	Zero:         {"model-scale-to-zero-config", "wva-model-scale-to-zero-config"},
	Saturation:   {"wva-saturation-scaling-config", "saturation-scaling-config", "capacity-scaling-config"},
	Limits:       {"variant-autoscaler-limits"},
}

// Names returns the names of the ConfigMaps of a kind. The first that exists is in force. The names after the first are those of other
// releases of the workload-variant-autoscaler.
func (k Kind) Names() []string { return configMapNames[k] }

// releaseSuffixes are the ends of the names that the chart of the workload-variant-autoscaler gives the ConfigMaps of a kind from 0.5 on,
// after the name of the release.
func (k Kind) releaseSuffixes() []string {
	if k == Limits { // only this program has them
		return nil
	}
	var suffixes []string
	for _, name := range k.Names() {
		suffixes = append(suffixes, "-"+name)
	}
	return suffixes
}

// Selection says which ConfigMaps of a kind are in force.
type Selection struct {
	// InForce are the names of those that are. Only classes can have two: their models add up.
	InForce []string
	// Ignored are those that look like it and are not, with the reason and what to do, by name.
	Ignored map[string]string
}

// queueingName is the ConfigMap with the targets of the queueing model of the workload-variant-autoscaler from 0.6 on.
const queueingName = "wva-queueing-model-config"

// IsRelevant reports whether a ConfigMap of this name may be in force.
func (o Options) IsRelevant(name string) bool {
	return slices.ContainsFunc(Kinds(), func(k Kind) bool { return o.HasKind(k, name) })
}

// HasKind reports whether a name is one of a kind.
func (o Options) HasKind(kind Kind, name string) bool {
	if named := o.Names[kind]; named != "" {
		return name == named
	}
	return slices.Contains(kind.Names(), name) || hasSuffix(kind, name) || kind == Classes && isQueueing(name)
}

func isQueueing(name string) bool {
	return name == queueingName || strings.HasSuffix(name, "-"+queueingName)
}

// hasSuffix reports whether a name is one of a kind after the name of a release.
func hasSuffix(kind Kind, name string) bool {
	return slices.ContainsFunc(kind.releaseSuffixes(),
		func(suffix string) bool { return strings.HasSuffix(name, suffix) && len(name) > len(suffix) })
}

// SearchNames returns the names of ConfigMaps that are searched for, with a * for the name of a release.
func (o Options) SearchNames(kind Kind) []string {
	if named := o.Names[kind]; named != "" {
		return []string{named}
	}
	all := slices.Clone(kind.Names())
	for _, suffix := range kind.releaseSuffixes() {
		if !slices.ContainsFunc(kind.releaseSuffixes(), func(other string) bool {
			return len(other) < len(suffix) && strings.HasSuffix(suffix,
				other)
		}) {
			all = append(all, "*"+suffix)
		}
	}
	return all
}

// MatchesSearch reports whether a name matches a name that SearchNames returned.
func MatchesSearch(looked, name string) bool {
	suffix, isPattern := strings.CutPrefix(looked, "*")
	return name == looked || isPattern && strings.HasSuffix(name, suffix)
}

// Select returns the ConfigMaps of a kind that are in force, of those that exist. A name that the flag --config-map gives stands alone.
// Otherwise the first of Kind.Names counts, and else the one with the name of a release before it: of several of these, none does.
// Classes of both are in force together.
func (o Options) Select(kind Kind, exist []string) Selection {
	if named := o.Names[kind]; named != "" {
		return Selection{InForce: filterNames(exist, func(name string) bool { return name == named })}
	}
	var s Selection
	for _, name := range kind.Names() {
		if slices.Contains(exist, name) {
			s.InForce = append(s.InForce, name)
		}
	}
	released := filterNames(exist, func(name string) bool { return hasSuffix(kind, name) && !slices.Contains(kind.Names(), name) })
	slices.Sort(released)
	if len(released) == 1 && (kind == Classes || len(s.InForce) == 0) {
		s.InForce, released = append(s.InForce, released[0]), nil
	}
	s.ignoreOthers(kind, released)
	if kind == Classes {
		s.ignoreAll(filterNames(exist, isQueueing), "ignored: give models their targets as slo-ttft and slo-tpot in a ConfigMap service-classes-config")
	}
	return s
}

// ignoreOthers sets what is ignored, besides released ones: all but the first in force, and but the second of classes.
func (s *Selection) ignoreOthers(kind Kind, released []string) {
	if len(s.InForce) == 0 {
		s.ignoreAll(released, fmt.Sprintf("ignored, as several ConfigMaps of this kind exist: %s; name one by --config-map=%s=NAME, or delete the others", strings.Join(released, ", "), kind))
		return
	}
	most := 1
	if kind == Classes {
		most = 2
	}
	if len(s.InForce) > most {
		released, s.InForce = append(released, s.InForce[most:]...), s.InForce[:most]
	}
	s.ignoreAll(released, fmt.Sprintf("ignored, as ConfigMap %s is in force: delete one of them, or name one by --config-map=%s=NAME", s.InForce[0], kind))
}

func (s *Selection) ignoreAll(names []string, why string) {
	for _, name := range names {
		if s.Ignored == nil {
			s.Ignored = map[string]string{}
		}
		s.Ignored[name] = why
	}
}

func filterNames(names []string, matches func(name string) bool) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !matches(name) })
}
