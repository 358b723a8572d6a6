package sources

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/scale"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// maxCards is the largest number of cards of a replica that the optimizer accepts.
	maxCards = 1_000_000
	// maxBatch is the largest batch of the queueing model, whose memory it bounds. Servers have 256 or 512 slots.
	maxBatch = 1 << 16
	// maxTime bounds the service times of a profile, in milliseconds: a day. With larger ones, products could overflow.
	maxTime = 24 * 60 * 60 * 1000
	// maxName is the longest name of an object.
	maxName = 253
)

// Bounds of a ScaledObject that says nothing.
const (
	kedaMin = 0
	kedaMax = 100
)

// readVariant completes a variant with what its object says and what its target has. Every number that it sets is one that the optimizer
// accepts, also if the variant gets a problem.
func (c *collector) readVariant(v *Variant) {
	s := v.spec
	if s.Invalid != "" {
		v.rejectWith(snapshot.InvalidConfiguration, "%s: correct it", s.Invalid)
	}
	v.readNames()
	if v.multiplies {
		v.rejectWith(snapshot.MetricTypeValue, "the metric has the type Value, which multiplies the present replicas by it: set the type AverageValue")
	}
	v.readBounds()
	v.readProfile()
	w := c.resolveTarget(v)
	if w != nil {
		v.readTarget(w)
		c.readRole(v)
		c.obeyPause(v)
	}
	if c.params.Writes {
		v.SetProblem(OwnershipOf(c.world, v.Namespace, v.Target).Problem)
	}
	c.keepLastReplica(v)
	v.readCards(w)
	v.readVariantID()
	v.readCost()
}

func (v *Variant) readNames() {
	s := v.spec
	v.Accelerator = s.Accelerator
	switch {
	case len(v.Name) > maxName:
		v.rejectWith(snapshot.InvalidConfiguration, "the name has more than %d characters: use a shorter one", maxName)
	case s.Model == "" && v.Source == snapshot.VariantAutoscaling:
		v.rejectWith(snapshot.InvalidConfiguration, "spec.modelID is missing: set the name that the servers give to the model")
	case s.Model == "":
		v.rejectWith(snapshot.InvalidConfiguration, "the annotation %s is missing: set the name that the servers give to the model",
			informers.AnnotationModel)
	}
	for _, field := range []struct{ name, text string }{
		{"name", v.Name}, {"model", s.Model}, {"accelerator", s.Accelerator}, {"name of the service class", s.Class.Name + s.Class.Key},
	} {
		if strings.ContainsFunc(field.text, unicode.IsControl) {
			v.rejectWith(snapshot.InvalidConfiguration, "the %s has control characters: remove them", field.name)
		}
	}
}

// readBounds reads minimum and maximum. Bounds that cannot be used are replaced by none.
func (v *Variant) readBounds() {
	low, high := v.declaredBounds()
	switch {
	case low < 0:
		v.rejectWith(snapshot.InvalidConfiguration, "the minimum of replicas is %d: use 0 or more", low)
	case high.Set && high.Value < 1:
		v.rejectWith(snapshot.InvalidConfiguration, "the maximum of replicas is %d: use 1 or more", high.Value)
	case high.Set && high.Value < low:
		v.rejectWith(snapshot.InvalidConfiguration, "the maximum of replicas is %d, and the minimum %d: raise the maximum", high.Value, low)
	case low > optimizer.MaxReplicas:
		v.rejectWith(snapshot.LimitExceeded, "the minimum of replicas is %d: at most %d are possible", low, optimizer.MaxReplicas)
	default:
		if v.Min = int(low); high.Set {
			v.Max = int(min(high.Value, optimizer.MaxReplicas))
		}
		if high.Value > optimizer.MaxReplicas {
			v.addNote(snapshot.LimitExceeded, "the maximum of replicas is %d: %d is used", high.Value, optimizer.MaxReplicas)
		}
	}
	v.readSchedule()
}

// readSchedule compares scheduled bounds with those that they replace. An autoscaler has bounds of its own, which no schedule changes.
func (v *Variant) readSchedule() {
	for i := range v.Schedule {
		s := &v.Schedule[i]
		b := v.BoundsOf(s)
		switch {
		case b.Max > 0 && b.Min > b.Max:
			v.rejectWith(snapshot.InvalidConfiguration, "entry %d of the schedule has a minimum of %d replicas, and a maximum of %d: set both in the entry",
				i, b.Min, b.Max)
		case v.Source != snapshot.VariantAutoscaling && (b.Min < v.Min || b.Max > v.Max):
			v.rejectWith(snapshot.InvalidConfiguration, "entry %d of the schedule has bounds from %d to %d replicas, outside of those of the %s, %d to %d: it would not follow",
				i, b.Min, b.Max, v.Source, v.Min, v.Max)
		}
	}
	if v.Problem != nil {
		v.Schedule = nil
	}
}

func (v *Variant) declaredBounds() (low int64, high informers.Number) {
	s := v.spec
	low, high = s.Min.Value, s.Max
	switch v.Source {
	case snapshot.VariantAutoscaling:
		if !s.Min.Set && !s.Seed {
			low = 1
		}
	case snapshot.HorizontalPodAutoscaler:
		if !s.Min.Set {
			low = 1
		}
		if !high.Set {
			high = informers.Number{Set: true} // the API requires it
		}
	case snapshot.ScaledObject:
		if !s.Min.Set {
			low = kedaMin
		}
		if !high.Set {
			high = informers.Number{Value: kedaMax, Set: true}
		}
		if s.IdleReplicas.Set && s.IdleReplicas.Value < low {
			v.addNote(snapshot.IdleReplicas, "KEDA runs %d replicas or more, or %d: between them, it runs more than planned", low, s.IdleReplicas.Value)
			low = s.IdleReplicas.Value
		}
	}
	return low, high
}

func (v *Variant) readProfile() {
	p := v.spec.Profile
	if !p.Set {
		return
	}
	profile := &snapshot.Profile{MaxBatch: int(min(max(p.MaxBatch.Value, 0), maxBatch))}
	for _, field := range []struct {
		name, text string
		to         *float64
	}{
		{"decodeParms.alpha", p.Alpha, &profile.Alpha},
		{"decodeParms.beta", p.Beta, &profile.Beta},
		{"prefillParms.gamma", p.Gamma, &profile.Gamma},
		{"prefillParms.delta", p.Delta, &profile.Delta},
	} {
		x, err := strconv.ParseFloat(strings.TrimSpace(field.text), 64)
		if err != nil || !(x >= 0) || x > maxTime {
			v.rejectWith(snapshot.InvalidConfiguration, "variantProfile.perfParms.%s is %q: use a number of milliseconds from 0 to %d", field.name,
				field.text, maxTime)
			return
		}
		*field.to = x
	}
	switch {
	case p.MaxBatch.Value < 1 || p.MaxBatch.Value > maxBatch:
		v.rejectWith(snapshot.InvalidConfiguration, "variantProfile.maxBatchSize is %d: use 1 to %d", p.MaxBatch.Value, maxBatch)
	case math.Max(profile.Alpha+profile.Beta, profile.Gamma+profile.Delta) == 0:
		v.rejectWith(snapshot.InvalidConfiguration, "variantProfile says that requests take no time: use measured times")
	default:
		v.Profile = profile
	}
}

// targetOf returns the target with the API version of its kind, so that two objects with one target are seen to have it.
func targetOf(s *informers.Spec) snapshot.Target {
	t := s.Target
	if t.Kind == "" && t.APIVersion == "" {
		t.Kind = informers.Deployment // the default of ScaledObjects
	}
	if v, ok := targetVersions[t.Kind]; ok && (t.APIVersion == "" || groupOf(t.APIVersion) == groupOf(v)) {
		t.APIVersion = v
	}
	return t
}

var targetVersions = map[string]string{
	informers.Deployment: "apps/v1", informers.StatefulSet: "apps/v1", informers.LeaderWorkerSet: "leaderworkerset.x-k8s.io/v1",
}

func groupOf(apiVersion string) string {
	v, _ := schema.ParseGroupVersion(apiVersion)
	return v.Group
}

// resolveTarget returns the target, nil if there is none that can be used.
func (c *collector) resolveTarget(v *Variant) *informers.Workload {
	t := v.Target
	reader := watchedReader(c.world, t)
	switch {
	case t.Name == "":
		v.rejectWith(snapshot.InvalidConfiguration, "spec.scaleTargetRef.name is missing: set the name of the workload")
		return nil
	case reader == nil:
		return c.resolveScale(v)
	case !reader.Listed():
		v.rejectWith(snapshot.UnsupportedTarget, "the cluster has no %ss: install their CRD", t.Kind)
		return nil
	}
	w := informers.FindObject[informers.Workload](reader, cache.ObjectName{Namespace: v.Namespace, Name: t.Name})
	if w == nil {
		v.rejectWith(snapshot.TargetNotFound, "%s %q does not exist: create it, or correct spec.scaleTargetRef", t.Kind, t.Name)
		return nil
	}
	v.addPodsOf(c, v.targetOwner())
	return w
}

// resolveScale returns a target of a kind that is not watched, as far as its scale subresource, and the workloads that it made, say it.
func (c *collector) resolveScale(v *Variant) *informers.Workload {
	t := v.Target
	scaled, err := (*scale.Scale)(nil), scale.ErrNoScale
	if c.params.Scale != nil {
		scaled, err = c.params.Scale(v.Namespace, t)
	}
	switch {
	case errors.Is(err, scale.ErrNotFound):
		v.rejectWith(snapshot.TargetNotFound, "%s %q does not exist: create it, or correct spec.scaleTargetRef", t.Kind, t.Name)
		return nil
	case err != nil:
		v.rejectWith(snapshot.UnsupportedTarget, "the target is a %q of %q, and %s: use a Deployment, a StatefulSet, a LeaderWorkerSet, or a kind with a scale subresource", t.Kind, t.APIVersion, err)
		return nil
	}
	return c.readScaled(v, scaled)
}

// readScaled returns what a scale, the workloads that the target made, and pods say of a target. The selector of the scale selects the pods
// that serve, one for each replica: a replica of a ModelServing has others too.
func (c *collector) readScaled(v *Variant, s *scale.Scale) *informers.Workload {
	owner := v.targetOwner()
	w := &informers.Workload{Replicas: s.Replicas, Ready: s.Current, Labels: s.Labels}
	workloads := informers.OwnedBy(c.world, owner)
	maps.DeleteFunc(workloads, func(_ informers.Owner, workload *informers.Workload) bool {
		return s.Selector != nil && !s.Selector.Matches(labels.Set(workload.Labels))
	})
	if len(workloads) > 0 {
		w.Ready = 0
	}
	role := ""
	for i, o := range slices.SortedFunc(maps.Keys(workloads),
		func(a, b informers.Owner) int { return cmp.Compare(a.String(), b.String()) }) {
		if named := roleLabel(workloads[o].Labels); i > 0 && named != role {
			v.rejectWith(snapshot.UnsupportedRole, "%s %s has pods of the roles %q and %q: declare a variant for the target of each role", v.Target.Kind,
				v.Target.Name, role, named)
		} else {
			role = named
		}
		w.Ready += workloads[o].Ready
		w.Cards = cmp.Or(w.Cards, workloads[o].Cards)
		w.Labels = withLabels(w.Labels, workloads[o].Labels)
		w.Shape, w.Claims = cmp.Or(w.Shape, workloads[o].Shape), cmp.Or(w.Claims, workloads[o].Claims)
		w.Queue, w.Queued = cmp.Or(w.Queue, workloads[o].Queue), w.Queued || workloads[o].Queued
		v.addPodsOf(c, o)
	}
	v.Owners = append(v.Owners, owner)
	own := informers.PodsOf(c.world.Pods, owner)
	if s.Selector != nil {
		own = informers.PodsBySelector(c.world.Pods, v.Namespace, s.Selector)
	}
	v.addPods(own)
	if len(workloads) == 0 && len(own) > 0 {
		w.Ready = readyOf(own, s)
		w.Labels = withLabels(w.Labels, slices.MinFunc(own, func(a, b *informers.Pod) int { return cmp.Compare(a.Name, b.Name) }).Labels)
	}
	return w
}

// readyOf returns the replicas that are ready. Without a selector, a replica may have several pods.
func readyOf(pods []*informers.Pod, s *scale.Scale) int64 {
	ready := int64(0)
	for _, p := range pods {
		if !p.Ready().IsZero() {
			ready++
		}
	}
	if s.Selector == nil {
		ready = min(ready, s.Current)
	}
	return ready
}

// withLabels returns labels with more labels.
func withLabels(before, more map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, before)
	maps.Copy(all, more)
	return all
}

func (v *Variant) readTarget(w *informers.Workload) {
	v.labels, v.Shape, v.Queue, v.Queued, v.Claims = w.Labels, w.Shape, w.Queue, w.Queued, w.Claims
	v.Now, v.Ready = int(min(max(w.Replicas, 0), optimizer.MaxReplicas)), int(min(max(w.Ready, 0), optimizer.MaxReplicas))
	if w.Replicas > optimizer.MaxReplicas {
		v.addNote(snapshot.LimitExceeded, "%s %s has %d replicas: the optimizer sees %d", v.Target.Kind, v.Target.Name, w.Replicas, optimizer.MaxReplicas)
	}
}

func (v *Variant) addPodsOf(c *collector, w informers.Owner) {
	v.Owners = append(v.Owners, w)
	v.addPods(informers.PodsOf(c.world.Pods, w))
}

func (v *Variant) addPods(pods []*informers.Pod) {
	for _, p := range pods {
		v.Pods = append(v.Pods, snapshot.Pod{Name: p.Name, Ready: p.Ready(), Created: p.Created()})
	}
	slices.SortFunc(v.Pods, func(a, b snapshot.Pod) int { return cmp.Compare(a.Name, b.Name) })
}

// readCards reads how many cards a replica has: what the object says, or else what the pods request, or else 1.
func (v *Variant) readCards(w *informers.Workload) {
	cards := int64(1)
	switch n := v.spec.Cards; {
	case n.Set:
		if cards = n.Value; cards < 1 || cards > maxCards {
			v.rejectWith(snapshot.InvalidConfiguration, "spec.acceleratorCount is %d: use 1 to %d", cards, maxCards)
		}
	case w == nil || w.Cards == 0:
	case w.Cards == informers.UnreadableCards || w.Cards > maxCards:
		v.rejectWith(snapshot.InvalidConfiguration, "%s %s requests no usable number of accelerators: use 1 to %d", v.Target.Kind, v.Target.Name, maxCards)
	default:
		cards = w.Cards
	}
	v.Cards = min(max(cards, 1), maxCards)
}

// readVariantID compares the identifier with what it is made of.
func (v *Variant) readVariantID() {
	want := fmt.Sprintf("%s-%s-%d", v.spec.Model, v.Accelerator, v.Cards)
	if id := v.spec.VariantID; id != "" && id != want {
		v.rejectWith(snapshot.InvalidConfiguration, "spec.variantID is %q, but model, accelerator and number of cards make %q: correct one of them", id,
			want)
	}
}
