package pass

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/pkg/apis/llmd/v1alpha1"
	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/learn"
	"fairlead.dev/services/variant-autoscaler/internal/memory"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// lowestPriority is that of models without a service class.
const lowestPriority = 100

// buildSnapshot returns the input of a decision.
func (p *Passes) buildSnapshot(ctx context.Context, s *settings.Settings, found *sources.Result, now time.Time) *snapshot.Snapshot {
	snap := &snapshot.Snapshot{Time: now, Settings: p.p.Settings}
	for i := range found.Groups {
		snap.Groups = append(snap.Groups, buildGroup(s, &found.Groups[i]))
	}
	p.beginWaits(snap)
	addLimits(snap, s, namespacesByAge(found.Groups))
	if p.p.Limiter || s.Limiter() {
		p.limitToInventory(ctx, snap, found)
	}
	loads := p.collectLoads(ctx, s, found, snap, now)
	for i := range snap.Groups {
		p.addWaits(snap, i, &loads[i])
		p.addHistory(&snap.Groups[i], &found.Groups[i], &loads[i], now)
	}
	for first, end := 0, 0; first < len(snap.Groups); first = end {
		_, end = snap.ModelGroups(first)
		alignStages(snap.Groups[first:end])
	}
	return snap
}

// namespacesByAge returns the namespaces of groups, the one with the oldest variant first: new namespaces take nothing from those that are
// there.
func namespacesByAge(groups []sources.Group) []string {
	oldest := map[string]time.Time{}
	for i := range groups {
		for n := range groups[i].Variants {
			v := &groups[i].Variants[n]
			if first, found := oldest[v.Namespace]; !found || v.Created.Before(first) {
				oldest[v.Namespace] = v.Created
			}
		}
	}
	return slices.SortedFunc(maps.Keys(oldest), func(a, b string) int {
		return cmp.Or(oldest[a].Compare(oldest[b]), strings.Compare(a, b))
	})
}

// addLimits adds the limits of the namespaces. If they are more than the optimizer takes, groups of the last namespaces keep their
// replicas: without their limits, they could take what the administrator denies them.
func addLimits(snap *snapshot.Snapshot, s *settings.Settings, namespaces []string) {
	if snap.Limits = s.Limits(namespaces); len(snap.Limits) <= optimizer.MaxLimits {
		return
	}
	common := len(s.Limits(nil))
	room, excluded := optimizer.MaxLimits-common, map[string]bool{}
	for _, namespace := range namespaces {
		if own := len(s.Limits([]string{namespace})) - common; own <= room {
			room -= own
		} else {
			excluded[namespace] = true
		}
	}
	snap.Limits = s.Limits(slices.DeleteFunc(namespaces, func(namespace string) bool { return excluded[namespace] }))
	for i := range snap.Groups {
		if g := &snap.Groups[i]; excluded[g.Namespace] {
			problem := snapshot.NewProblem(snapshot.LimitExceeded,
				"there are more than %d limits of namespaces with variants: limit fewer namespaces, or use limits for all of them together", optimizer.MaxLimits)
			for n := range g.Variants {
				g.Variants[n].SetProblem(problem)
			}
		}
	}
}

// buildGroup returns what the objects and the settings say of a group.
func buildGroup(s *settings.Settings, in *sources.Group) snapshot.Group {
	built := snapshot.Group{Namespace: in.Namespace, Pool: in.Pool, Model: in.Model, Role: in.Role, Priority: lowestPriority}
	for i := range in.Variants {
		built.Variants = append(built.Variants, in.Variants[i].Variant)
	}
	built.Saturation = s.Saturation(in.Namespace, in.Model)
	built.Zero.Enabled, built.Zero.Retention = s.ScaleToZero(in.Namespace, in.Model)
	built.Zero.WaitingCost = s.WaitingCost(in.Namespace, in.Model)
	class, problem := s.Class(in.Namespace, in.Model, in.Class.Key)
	if problem == nil {
		built.Class, built.Priority, built.Targets, built.Note = class.Name, class.Priority, class.Targets, class.Note
		built.PrefillRatio = class.Ratio
	} else {
		built.Note = problem.Message // the plan is for a stable load
	}
	return built
}

// collectLoads returns the load of each group. Groups without a valid variant are not queried. The groups of the roles of a model share one
// query.
func (p *Passes) collectLoads(ctx context.Context, s *settings.Settings, found *sources.Result, snap *snapshot.Snapshot,
	now time.Time) []collect.Result {
	results := make([]collect.Result, len(snap.Groups))
	var groupIndexes []int // the first group of each request
	var requests []collect.Group
	for first, end := 0, 0; first < len(snap.Groups); first = end {
		_, end = snap.ModelGroups(first)
		active := false
		for i := first; i < end; i++ {
			results[i] = collect.Result{Load: snapshot.Load{State: snapshot.Missing, Message: "all variants of the model have a problem"}}
			active = active || snap.Groups[i].IsActive()
		}
		if active {
			groupIndexes = append(groupIndexes, first)
			requests = append(requests, collectGroup(snap.Groups[first:end], found.Groups[first:end], evaluations*s.Interval()))
		}
	}
	if len(requests) == 0 {
		return results
	}
	c, err := p.p.Prometheus(s)
	if err != nil {
		answer := collect.Result{Load: snapshot.Load{State: snapshot.Failed, Message: err.Error()}}
		for _, first := range groupIndexes {
			splitResult(&answer, snap, first, results)
		}
		return results
	}
	answers := c.Collect(ctx, now, requests)
	for n := range answers {
		splitResult(&answers[n], snap, groupIndexes[n], results)
	}
	return results
}

// evaluations is the number of intervals for which a request that waited counts. With one, a pass that takes long would not see a request
// that came and went just after the pass before.
const evaluations = 2

// collectGroup returns the request for the load of the groups of a model.
func collectGroup(groups []snapshot.Group, in []sources.Group, waited time.Duration) collect.Group {
	g := &groups[0]
	request := collect.Group{Namespace: g.Namespace, Pool: g.Pool, Model: g.Model}
	if g.Zero.Enabled {
		request.Retention, request.Waited = g.Zero.Retention, waited
	}
	for i := range in {
		for n := range in[i].Variants {
			v := &in[i].Variants[n]
			request.Variants = append(request.Variants, collect.Variant{Name: v.Name, Role: in[i].Role, Pods: v.Pods})
		}
	}
	return request
}

// splitResult gives each group of a model its part of a result.
func splitResult(answer *collect.Result, snap *snapshot.Snapshot, first int, results []collect.Result) {
	_, end := snap.ModelGroups(first)
	variants := answer.Variants
	for i := first; i < end; i++ {
		n := min(len(snap.Groups[i].Variants), len(variants))
		results[i] = *answer
		results[i].Load, results[i].Variants = answer.LoadForRole(snap.Groups[i].Role), variants[:n]
		variants = variants[n:]
	}
}

// addHistory adds to a group with a load what was learned about it and decided on it before.
func (p *Passes) addHistory(g *snapshot.Group, in *sources.Group, load *collect.Result, now time.Time) {
	g.Targets = g.Targets.ForLoad(&g.Load)
	known, slowest := p.memory.GroupFor(g.Key(), now), time.Duration(0)
	g.Zero.Changed, g.Zero.Standby = known.Changed, known.Standby
	if z := &g.Zero; z.Enabled && z.Requests != nil {
		z.WakeUps = known.RecordIdle(*z.Requests == 0 && z.Waiting == 0, now)
	}
	p.addReadiness(g, in, now)
	for i := range g.Variants {
		v := &g.Variants[i]
		p.recallVariant(v, &in.Variants[i], now)
		if len(load.Variants) > i {
			v.Weight = load.Variants[i].Weight
			v.Spare = spareCapacity(v, load.Variants[i].Usages, g.Saturation, g.Role)
			checkRole(v, load.Variants[i].Sample, g.Role)
			p.learnCapacity(v, &load.Variants[i], g)
		}
		slowest = max(slowest, v.Start)
	}
	if g.Load.State == snapshot.Found {
		seen := known.RecordLoad(g.Load.Rate, p.p.Rates, slowest, now)
		g.Load.Recent, g.Load.Rate = g.Load.Rate, seen.Steady
		if p.p.Forecast {
			g.Forecast = seen.Ahead
		}
	}
}

// spareCapacity returns how far the servers of a variant are from saturation, or nil if the group has no thresholds.
func spareCapacity(v *snapshot.Variant, usages []collect.Usage, t *snapshot.Thresholds, role snapshot.Role) *snapshot.Spare {
	if t == nil || v.Profile != nil || v.Problem != nil || len(usages) == 0 {
		return nil
	}
	result := &snapshot.Spare{Seen: len(usages)}
	for _, u := range usages {
		if role == snapshot.Prefill {
			u.KV = 0 // it keeps KV caches until decode servers have fetched them
		}
		if u.KV < t.KVCache && u.Waiting < t.QueueLength {
			result.Free++
			result.KV += (u.KV - result.KV) / float64(result.Free)
			result.Queue += (u.Waiting - result.Queue) / float64(result.Free)
		}
	}
	return result
}

// recallVariant adds what earlier passes know of a variant. A new leader knows the last decision from the status, if there is one.
func (p *Passes) recallVariant(v *snapshot.Variant, in *sources.Variant, now time.Time) {
	known := p.memory.VariantFor(v.Key(), now)
	if !known.Decided {
		restoreStatus(known, in.Status, now)
	}
	v.Previous, v.Decided = known.Previous, known.Decided
	if v.Problem != nil && v.Problem.Reason == snapshot.Paused {
		v.Previous = v.Now // the last decision had no effect
	}
	v.Tried, v.Trying = known.Tried, known.Trying
	v.Held = known.StabilizedReplicas(v.Now, now)
	v.Start = known.ObserveStarts(in.Pods)
}

// maxStart is the longest start in seconds that counts of a status, as the schema has it.
const maxStart = 24 * 60 * 60

// restoreStatus adds to what is known of a variant what another replica of the program has written to the status of a VariantAutoscaling.
// The status is untrusted: decisions keep bounds and limits, and starts that are seen displace this one.
func restoreStatus(v *memory.Variant, status []byte, now time.Time) {
	var last v1alpha1.VariantAutoscalingStatus
	_ = json.Unmarshal(status, &last) // what cannot be read of it is not known
	if last.StartSeconds > 0 && last.StartSeconds <= maxStart {
		v.RestoreStart(time.Duration(last.StartSeconds) * time.Second)
	}
	desired := last.DesiredOptimizedAlloc
	if desired == nil || desired.NumReplicas == nil || *desired.NumReplicas < 0 {
		return
	}
	v.Previous, v.Decided = int(*desired.NumReplicas), true
	if u := desired.LastUpdate; u != nil && u.Reason == string(decision.Probing) && v.Previous == 1 {
		v.StartTrial(now) // the other leader began it: it ends, too
	}
}

// checkRole excludes a variant whose servers do not do what their role says: their figures would be taken for those of prefills.
func checkRole(v *snapshot.Variant, s *snapshot.Sample, role snapshot.Role) {
	if role == snapshot.Prefill && v.Problem == nil && s != nil && s.Output > snapshot.MostPrefillOutput {
		v.Problem = snapshot.NewProblem(snapshot.RoleMismatch,
			"the pods have the role prefill, and generate %.0f tokens for a request: set the label %s of the pod template to both, or let the picker send them prefills only", s.Output, sources.LabelRole)
	}
}

// learnCapacity adds what the replicas of a variant were seen to serve.
func (p *Passes) learnCapacity(v *snapshot.Variant, seen *collect.VariantResult, g *snapshot.Group) {
	if v.Profile != nil || v.Problem != nil {
		return
	}
	key := learnerKey{v.Key(), g.Role}
	learner := p.learners[key]
	if learner == nil {
		if seen.Sample == nil {
			return
		}
		if learner = learn.New(); g.Role == snapshot.Prefill {
			learner = learn.NewPrefill()
		}
		p.learners[key] = learner
	}
	wanted := g.Targets.ForRole(g.Role)
	targets := queueing.Targets{TTFT: wanted.TTFT, ITL: wanted.ITL, Percentile: p.p.Percentile}
	if g.Role == snapshot.Decode {
		targets.TTFT = 0 // samples do not have it: it is that of prefill servers, too
	}
	if seen.Sample != nil {
		v.Measured = learner.Observe(seen.Sample, targets)
	} else {
		v.Measured = learner.Measured(targets)
	}
	traffic := decision.TrafficOf(g)
	if wanted.IsSet() && learn.Capacity(v.Measured, traffic, targets) == 0 {
		v.Stable = learner.Measured(queueing.Targets{})
	}
}
