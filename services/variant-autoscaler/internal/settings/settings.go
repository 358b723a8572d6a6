// Package settings decodes the ConfigMaps that administrators write into the settings of a pass. It is pure.
//
//	kind           ConfigMap                                               required   an invalid entry
//	Optimization   workload-variant-autoscaler-variantautoscaling-config   no         has its default
//	Accelerators   accelerator-unit-costs                                  yes        is ignored
//	Classes        service-classes-config                                  yes        is ignored
//	Zero           model-scale-to-zero-config                              no         is ignored
//	Saturation     wva-saturation-scaling-config                           no         is ignored
//	Limits         variant-autoscaler-limits                               no         keeps its last valid value
//
// An invalid entry costs itself only, and gives a warning that names its key and what to do. A limit is an exception: without its last
// valid value, a typing error would remove it, and tenants could take what it kept from them.
//
// A Builder takes the content of ConfigMaps and gives Settings, which never change. Work is linear in the size of a ConfigMap, which is
// at most 1 MiB.
package settings

import (
	"cmp"
	"fmt"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Reasons of warnings, Events and conditions.
const (
	ReasonInvalid   = "InvalidConfiguration"
	ReasonUnknown   = "UnknownConfiguration"
	ReasonImmutable = "ImmutableConfigChangeRejected"
	ReasonNoClass   = "NoServiceClass"
)

// Kind is what a ConfigMap is for.
type Kind string

// Kinds of ConfigMaps.
const (
	Optimization Kind = "optimization"
	Accelerators Kind = "accelerators"
	Classes      Kind = "classes"
	Zero         Kind = "scale-to-zero"
	Saturation   Kind = "saturation"
	Limits       Kind = "limits"
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Optimization, Accelerators, Classes, Zero, Saturation, Limits} }

// Names returns the default names of the ConfigMaps of a kind. The first that exists is in force. The names after the first are those of
// other releases of the workload-variant-autoscaler.
func (k Kind) Names() []string {
	switch k {
	case Optimization:
		return []string{"workload-variant-autoscaler-variantautoscaling-config", "variantautoscaling-config", "wva-variantautoscaling-config"}
	case Accelerators:
		return []string{"accelerator-unit-costs"}
	case Classes:
		return []string{"service-classes-config"}
	case Zero:
		return []string{"model-scale-to-zero-config", "wva-model-scale-to-zero-config"}
	case Saturation:
		return []string{"wva-saturation-scaling-config", "saturation-scaling-config", "capacity-scaling-config"}
	default:
		return []string{"variant-autoscaler-limits"}
	}
}

// Settings are what all ConfigMaps say together. They never change.
type Settings struct {
	required     map[Kind]string // full names of the ConfigMaps
	present      map[Kind]string // names of the ConfigMaps
	optimization optimization
	prices       map[string]int64
	classes      classes
	zero         zero
	saturation   saturation
	limits       limits
}

// Interval is the time from the end of a pass to the next one.
func (s *Settings) Interval() time.Duration { return s.optimization.interval }

// Prometheus says how to reach Prometheus. Only the tokens change while the process runs.
func (s *Settings) Prometheus() Prometheus { return s.optimization.prometheus }

// ConfigMap returns the name of the ConfigMap that is in force for a kind. Empty: there is none.
func (s *Settings) ConfigMap(kind Kind) string { return s.present[kind] }

// Problem returns the reason why no decision is possible, or nil: a required ConfigMap is missing.
func (s *Settings) Problem() *snapshot.Problem {
	for _, kind := range []Kind{Accelerators, Classes} {
		if s.present[kind] == "" {
			return &snapshot.Problem{Reason: ReasonInvalid, Message: fmt.Sprintf(
				"ConfigMap %s does not exist: create it; all variants keep their replicas until then", s.required[kind])}
		}
	}
	return nil
}

// Prices are what cards of accelerators cost, in millionths of a cent per hour. They must not be changed.
func (s *Settings) Prices() map[string]int64 { return s.prices }

// Class returns the service class of a model in a namespace. key is the class that a variant asks for, a key of the ConfigMap; it may be
// empty. A problem with reason ReasonNoClass means that no class has the model; one with ReasonInvalid, that classes disagree about it.
func (s *Settings) Class(namespace, model, key string) (Class, *snapshot.Problem) {
	return s.classes.find(namespace, model, key)
}

// Zero reports whether a model may have no replicas in a namespace, and how long after its last request.
func (s *Settings) Zero(namespace, model string) (enabled bool, retention time.Duration) {
	entry := s.zero.find(namespace, model)
	enabled = s.optimization.scaleToZero
	if entry.enabled != nil {
		enabled = *entry.enabled
	}
	return enabled, cmp.Or(entry.retention, DefaultRetention)
}

// Saturation returns the thresholds of a model in a namespace, or nil without a ConfigMap of them.
func (s *Settings) Saturation(namespace, model string) *snapshot.Thresholds {
	if s.present[Saturation] == "" {
		return nil
	}
	found := s.saturation.find(namespace, model)
	return &found
}

// Limits returns the limits that apply to the variants of these namespaces, in a fixed order.
func (s *Settings) Limits(namespaces []string) []snapshot.Limit { return s.limits.of(namespaces) }

// MaxVariants returns how many variants a namespace may have.
func (s *Settings) MaxVariants(namespace string) int { return s.limits.maxVariants(namespace) }
