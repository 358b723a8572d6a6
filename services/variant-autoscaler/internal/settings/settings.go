// Package settings decodes the ConfigMaps that administrators write into the settings of a pass. It is pure.
//
//	kind           ConfigMap                                               without it                          an invalid entry
//	Optimization   workload-variant-autoscaler-variantautoscaling-config   defaults                            has its default
//	Accelerators   accelerator-unit-costs                                  replicas cost what variants say     is ignored
//	Classes        service-classes-config                                  no targets: stable loads            is ignored
//	Zero           model-scale-to-zero-config                              defaults                            is ignored
//	Saturation     wva-saturation-scaling-config                           no thresholds                       is ignored
//	Limits         variant-autoscaler-limits                               no limits                           keeps its last valid value
//
// Options.Select says which ConfigMaps of a namespace are in force: releases of the workload-variant-autoscaler call them differently.
//
// An invalid entry costs itself only, and gives a warning that names its key and what to do. A limit is an exception: without its last
// valid value, a typing error would remove it, and tenants could take what it kept from them.
//
// A Builder takes the content of ConfigMaps and gives Settings, which never change. Work is linear in the size of a ConfigMap, which is
// at most 1 MiB.
package settings

import (
	"cmp"
	"time"

	"k8s.io/utils/ptr"

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

// Settings are what all ConfigMaps say together. They never change.
type Settings struct {
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

// ConfigMap returns the name of the ConfigMap that is in force for a kind, the first one of several. Empty: there is none.
func (s *Settings) ConfigMap(kind Kind) string { return s.present[kind] }

// Prices are what cards of accelerators cost, in millionths of a cent per hour. They must not be changed.
func (s *Settings) Prices() map[string]int64 { return s.prices }

// Class returns the service class of a model in a namespace. key is the class that a variant asks for, a key of the ConfigMap; it may be
// empty. The problem, with reason ReasonNoClass, means that no class has the model.
func (s *Settings) Class(namespace, model, key string) (Class, *snapshot.Problem) {
	return s.classes.findClass(namespace, model, key)
}

// ScaleToZero reports whether a model may have no replicas in a namespace, and how long after its last request.
func (s *Settings) ScaleToZero(namespace, model string) (enabled bool, retention time.Duration) {
	entry := s.zero.entryOf(namespace, model)
	return ptr.Deref(entry.enabled, s.optimization.scaleToZero), cmp.Or(entry.retention, DefaultRetention)
}

// WaitingCost returns what an hour costs in which requests wait for a model to wake, in millionths. 0: it is not set.
func (s *Settings) WaitingCost(namespace, model string) int64 {
	return ptr.Deref(s.zero.entryOf(namespace, model).waiting, 0)
}

// Saturation returns the thresholds of a model in a namespace, or nil without a ConfigMap of them.
func (s *Settings) Saturation(namespace, model string) *snapshot.Thresholds {
	if s.present[Saturation] == "" {
		return nil
	}
	return new(s.saturation.thresholdsOf(namespace, model))
}

// Limiter reports whether variants are limited to the accelerators that nodes have free.
func (s *Settings) Limiter() bool { return s.saturation.limiter }

// Limits returns the limits that apply to the variants of these namespaces, in a fixed order.
func (s *Settings) Limits(namespaces []string) []snapshot.Limit {
	return s.limits.forNamespaces(namespaces)
}

// MaxVariants returns how many variants a namespace may have.
func (s *Settings) MaxVariants(namespace string) int { return s.limits.maxVariants(namespace) }
