// Package sources finds the variants of a pass in the objects of the cluster. It is pure: the same objects give the same variants, in the
// same order.
//
//	declarations   VariantAutoscalings, and annotated ScaledObjects and HorizontalPodAutoscalers (package informers reads them)
//	admit          one variant for each target and for each name, and a limit for each namespace; the others are rejected
//	read           what an object says, and what its target has; a variant with a problem stays in its group, with harmless numbers
//	group          by namespace, InferencePool and model; the groups agree on a service class, and on where costs come from
//	role           servers that only prefill, and those that only decode, are groups of their own
//	bound          the costs of all variants together, so that the optimizer accepts them
//
// These objects are untrusted. An invalid one affects only its own variant: see the reasons of package snapshot.
package sources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	kit "fairlead.dev/pkg/informers"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/inventory"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// Params are what Collect needs besides objects.
type Params struct {
	// PerNamespace returns the largest number of variants of a namespace.
	PerNamespace func(namespace string) int
	// Scale reads the scale of a target of a kind that is not watched. Nil: none can be read.
	Scale scale.Read
	// Writes reports that this program writes replicas: then a target that something else scales is a problem.
	Writes bool
	// CanStop reports whether a model may have no replicas. Nil: none may.
	CanStop func(namespace, model string) bool
	// Prices are the micro-units per hour that a card of an accelerator costs.
	Prices map[string]int64
}

// Result is the variants of a pass.
type Result struct {
	// Groups are ordered by namespace, pool, model and role, and none is empty.
	Groups []Group
	// Rejected are variants that are in no group, ordered by namespace, source and name. They have a Problem, no replicas and no bounds,
	// and their names need not be unique. Nothing is published for them.
	Rejected []Variant
}

// Group is the variants that share one load, ordered by name. Names are unique in a namespace.
type Group struct {
	snapshot.GroupKey
	// Class is where the variants want their service class from. It is empty if none of them says so.
	Class    informers.ClassRef
	Variants []Variant
}

// Variant is a variant with what only the running program needs to know of it.
type Variant struct {
	snapshot.Variant
	// Object declares the variant. Events and conditions are about it.
	Object     corev1.ObjectReference
	Generation int64
	Created    time.Time
	// Status is the JSON of the status of a VariantAutoscaling, nil if it has none.
	Status []byte
	Class  informers.ClassRef
	// Pods are those that serve, or start to, ordered by name.
	Pods []snapshot.Pod
	// Owners are the workloads whose pods belong to the variant, whether they serve or not, and Shape is what these request of nodes.
	Owners []informers.Owner
	Shape  inventory.Shape
	// Queue is the LocalQueue of Kueue that the workload names, and Queued reports that Kueue manages it.
	Queue  string
	Queued bool
	// Claims is what the pods request by claims of devices, nil if they do not.
	Claims *informers.PodClaims
	// Notes are what the owner of the variant should know. The variant takes part in the choice.
	Notes []snapshot.Problem

	spec         *informers.Spec
	role         snapshot.Role
	multiplies   bool
	labels       map[string]string // of the pods of the target
	declaredCost *int64            // nil: the object sets none
}

// targetOwner returns the target as the owner of pods and autoscalers.
func (v *Variant) targetOwner() informers.Owner {
	return informers.Owner{Namespace: v.Namespace, Kind: v.Target.Kind, Name: v.Target.Name}
}

func (v *Variant) rejectWith(reason, format string, args ...any) {
	v.SetProblem(snapshot.NewProblem(reason, format, args...))
}

func (v *Variant) addNote(reason, format string, args ...any) {
	v.Notes = append(v.Notes, *snapshot.NewProblem(reason, format, args...))
}

// Collect returns the variants that the objects declare. It returns an error if objects of a kind that every cluster has are not known.
func Collect(world informers.Caches, p Params) (*Result, error) {
	for _, k := range []struct {
		name   string
		reader kit.Reader
	}{
		{"HorizontalPodAutoscalers", world.HorizontalPodAutoscalers},
		{"Deployments", world.Deployments},
		{"StatefulSets", world.StatefulSets},
		{"Pods", world.Pods},
		{"Namespaces", world.Namespaces},
	} {
		if !k.reader.Listed() {
			return nil, fmt.Errorf("list %s: they are not known yet", k.name)
		}
	}
	c := &collector{world: world, params: p, groups: map[snapshot.GroupKey]*Group{}}
	result := &Result{}
	for _, v := range admitVariants(c.declaredVariants(), p.PerNamespace) {
		if v.Problem != nil {
			result.Rejected = append(result.Rejected, *v)
			continue
		}
		c.readVariant(v)
		c.placeInGroup(v)
	}
	result.Groups = c.finishGroups()
	slices.SortFunc(result.Rejected, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(sourceRank[a.Source], sourceRank[b.Source]),
			cmp.Compare(a.Name, b.Name))
	})
	return result, nil
}

type collector struct {
	world  informers.Caches
	params Params
	pools  map[string][]*informers.Pool // by namespace, nil before the first look-up
	groups map[snapshot.GroupKey]*Group // without roles
	// decoders are the InferenceServices with a decoder, nil before the first look-up.
	decoders map[service]bool
}

// apiVersions are the versions of the objects that declare variants.
var apiVersions = map[snapshot.Source]string{
	snapshot.VariantAutoscaling: "llmd.ai/v1alpha1", snapshot.HorizontalPodAutoscaler: "autoscaling/v2",
	snapshot.ScaledObject: "keda.sh/v1alpha1",
}

// declaredVariants returns the variants of all objects, without those of excluded namespaces.
func (c *collector) declaredVariants() []*Variant {
	var variants []*Variant
	for _, reader := range []kit.Reader{c.world.VariantAutoscalings, c.world.ScaledObjects, c.world.HorizontalPodAutoscalers} {
		for _, d := range informers.ListAll[informers.Declaration](reader) {
			if d.Spec == nil {
				continue
			}
			if n := informers.FindObject[informers.Namespace](c.world.Namespaces,
				cache.ObjectName{Name: d.Namespace}); n != nil && n.Excluded {
				continue
			}
			variants = append(variants, newVariant(d))
		}
	}
	return variants
}

func newVariant(d *informers.Declaration) *Variant {
	v := &Variant{
		Variant: snapshot.Variant{Namespace: d.Namespace, Name: d.Name, Source: d.Source, Target: targetOf(d.Spec), Cards: 1,
			Schedule: d.Schedule},
		Object: corev1.ObjectReference{
			APIVersion: apiVersions[d.Source], Kind: string(d.Source), Namespace: d.Namespace, Name: d.Name, UID: d.UID,
			ResourceVersion: d.Version,
		},
		Generation: d.Generation, Created: d.Created, Status: d.Status, Class: d.Spec.Class, spec: d.Spec, multiplies: d.Multiplies,
	}
	if d.Spec.Name != "" && d.Spec.Name != d.Name {
		v.Name, v.ObjectName = d.Spec.Name, d.Name
	}
	return v
}

// placeInGroup adds a variant to its group.
func (c *collector) placeInGroup(v *Variant) {
	key := snapshot.GroupKey{Namespace: v.Namespace, Pool: c.poolOf(v), Model: v.spec.Model}
	g := c.groups[key]
	if g == nil {
		g = &Group{GroupKey: key}
		c.groups[key] = g
	}
	g.Variants = append(g.Variants, *v)
}

// finishGroups sets classes and costs of the groups, splits them by role and bounds their costs.
func (c *collector) finishGroups() []Group {
	groups := make([]Group, 0, len(c.groups))
	for _, g := range c.groups {
		slices.SortFunc(g.Variants, func(a, b Variant) int { return strings.Compare(a.Name, b.Name) })
		g.agreeOnClass()
		g.setCosts(c.params.Prices)
		groups = append(groups, g.splitRoles()...)
	}
	slices.SortFunc(groups, func(a, b Group) int { return a.Compare(b.GroupKey) })
	boundCosts(groups)
	return groups
}

// agreeOnClass takes the class of the oldest variant that has one. Others that want another one take no part: the targets of a load are
// those of its requests, and cannot depend on who serves them.
func (g *Group) agreeOnClass() {
	var first *Variant
	for i := range g.Variants {
		v := &g.Variants[i]
		if v.Problem == nil && v.Class != (informers.ClassRef{}) && (first == nil || compareAge(v, first) < 0) {
			first = v
		}
	}
	if first == nil {
		return
	}
	g.Class = first.Class
	for i := range g.Variants {
		if v := &g.Variants[i]; v.Class != (informers.ClassRef{}) && v.Class != g.Class {
			v.rejectWith(snapshot.InvalidConfiguration, "spec.sloClassRef is %q, %q, but the older %s %s of the same model has %q, %q: set the same in both",
				v.Class.Name, v.Class.Key, first.Source, first.Name, g.Class.Name, g.Class.Key)
		}
	}
}
