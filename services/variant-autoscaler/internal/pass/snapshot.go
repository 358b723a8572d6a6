package pass

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/decision"
	"fairlead.dev/services/variant-autoscaler/internal/learn"
	"fairlead.dev/services/variant-autoscaler/internal/memory"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/sample"
	"fairlead.dev/services/variant-autoscaler/internal/settings"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// lowestPriority is that of models without a service class.
const lowestPriority = 100

// snapshot returns the input of a decision.
func (p *Passes) snapshot(ctx context.Context, s *settings.Settings, found *sources.Result, now time.Time) *snapshot.Snapshot {
	made := &snapshot.Snapshot{Time: now, Settings: p.p.Settings}
	for i := range found.Groups {
		made.Groups = append(made.Groups, group(s, &found.Groups[i]))
	}
	p.beginWaits(made)
	limit(made, s, byAge(found.Groups))
	if p.p.Limiter || s.Limiter() {
		p.limitToInventory(ctx, made, found)
	}
	loads := p.loads(ctx, s, found, made, now)
	for i := range made.Groups {
		p.addWaits(made, i, &loads[i])
		p.complete(&made.Groups[i], &found.Groups[i], &loads[i], now)
	}
	for first, end := 0, 0; first < len(made.Groups); first = end {
		_, end = made.Stages(first)
		alignStages(made.Groups[first:end])
	}
	return made
}

// byAge returns the namespaces of groups, the one with the oldest variant first: new namespaces take nothing from those that are there.
func byAge(groups []sources.Group) []string {
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

// limit adds the limits of the namespaces. If they are more than the optimizer takes, groups of the last namespaces keep their replicas:
// without their limits, they could take what the administrator denies them.
func limit(made *snapshot.Snapshot, s *settings.Settings, namespaces []string) {
	if made.Limits = s.Limits(namespaces); len(made.Limits) <= optimizer.MaxLimits {
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
	made.Limits = s.Limits(slices.DeleteFunc(namespaces, func(namespace string) bool { return excluded[namespace] }))
	for i := range made.Groups {
		if g := &made.Groups[i]; excluded[g.Namespace] {
			exclude(g, &snapshot.Problem{Reason: sources.LimitExceeded, Message: fmt.Sprintf(
				"there are more than %d limits of namespaces with variants: limit fewer namespaces, or use limits for all of them together", optimizer.MaxLimits)})
		}
	}
}

// group returns what the objects and the settings say of a group.
func group(s *settings.Settings, in *sources.Group) snapshot.Group {
	made := snapshot.Group{Namespace: in.Namespace, Pool: in.Pool, Model: in.Model, Role: in.Role, Priority: lowestPriority}
	for i := range in.Variants {
		made.Variants = append(made.Variants, in.Variants[i].Variant)
	}
	made.Saturation = s.Saturation(in.Namespace, in.Model)
	made.Zero.Enabled, made.Zero.Retention = s.Zero(in.Namespace, in.Model)
	made.Zero.WaitingCost = s.WaitingCost(in.Namespace, in.Model)
	class, problem := s.Class(in.Namespace, in.Model, in.Class.Key)
	if problem == nil {
		made.Class, made.Priority, made.Targets, made.Note = class.Name, class.Priority, class.Targets, class.Note
		made.PrefillRatio = class.Ratio
	} else {
		made.Note = problem.Message // the plan is for a stable load
	}
	return made
}

// exclude gives a problem to all variants that have none.
func exclude(g *snapshot.Group, problem *snapshot.Problem) {
	for i := range g.Variants {
		if v := &g.Variants[i]; v.Problem == nil {
			v.Problem = problem
		}
	}
}

// loads returns the load of each group. Nobody is asked for the load of a model whose variants all have a problem. The groups of the roles
// of a model are one question.
func (p *Passes) loads(ctx context.Context, s *settings.Settings, found *sources.Result, made *snapshot.Snapshot, now time.Time) []collect.Result {
	results := make([]collect.Result, len(made.Groups))
	var asked []int // the first group of each question
	var questions []collect.Group
	for first, end := 0, 0; first < len(made.Groups); first = end {
		_, end = made.Stages(first)
		active := false
		for i := first; i < end; i++ {
			results[i] = collect.Result{Load: snapshot.Load{State: snapshot.Missing, Message: "all variants of the model have a problem"}}
			active = active || slices.ContainsFunc(made.Groups[i].Variants, func(v snapshot.Variant) bool { return v.Problem == nil })
		}
		if active {
			asked = append(asked, first)
			questions = append(questions, question(made.Groups[first:end], found.Groups[first:end], evaluations*s.Interval()))
		}
	}
	if len(questions) == 0 {
		return results
	}
	c, err := p.p.Prometheus.Collector(s)
	if err != nil {
		answer := collect.Result{Load: snapshot.Load{State: snapshot.Failed, Message: err.Error()}}
		for _, first := range asked {
			distribute(&answer, made, first, results)
		}
		return results
	}
	answers := c.Collect(ctx, now, questions)
	for n := range answers {
		distribute(&answers[n], made, asked[n], results)
	}
	return results
}

// evaluations is the number of intervals for which a request that waited counts. With one, a pass that takes long would not see a request
// that came and went just after the pass before.
const evaluations = 2

// question asks for the load of the groups of a model.
func question(groups []snapshot.Group, in []sources.Group, waited time.Duration) collect.Group {
	g := &groups[0]
	made := collect.Group{Namespace: g.Namespace, Pool: g.Pool, Model: g.Model}
	if g.Zero.Enabled {
		made.Retention, made.Waited = g.Zero.Retention, waited
	}
	for i := range in {
		for n := range in[i].Variants {
			v := collect.Variant{Name: in[i].Variants[n].Name, Role: in[i].Role}
			for _, pod := range in[i].Variants[n].Pods {
				v.Pods = append(v.Pods, collect.Pod{Name: pod.Name, Ready: pod.Ready})
			}
			made.Variants = append(made.Variants, v)
		}
	}
	return made
}

// distribute gives each group of a model its part of an answer.
func distribute(answer *collect.Result, made *snapshot.Snapshot, first int, results []collect.Result) {
	_, end := made.Stages(first)
	variants := answer.Variants
	for i := first; i < end; i++ {
		n := min(len(made.Groups[i].Variants), len(variants))
		results[i] = collect.Result{
			Load: answer.LoadForRole(made.Groups[i].Role), Requests: answer.Requests, RequestsMessage: answer.RequestsMessage,
			Waited: answer.Waited, Picker: answer.Picker, Variants: variants[:n],
		}
		variants = variants[n:]
	}
}

// complete adds what was learned and decided before on a group with a load.
func (p *Passes) complete(g *snapshot.Group, in *sources.Group, load *collect.Result, now time.Time) {
	g.Targets = g.Targets.For(&g.Load)
	key, slowest := groupOf(g), time.Duration(0)
	g.Zero.Changed, g.Zero.Standby = p.memory.Changed(key, now), p.memory.Standby(key)
	if z := &g.Zero; z.Enabled && z.Requests != nil {
		z.WakeUps = p.memory.Idle(key, *z.Requests == 0 && z.Waiting == 0, now)
	}
	p.addReadiness(g, in, now)
	for i := range g.Variants {
		v := &g.Variants[i]
		p.recall(v, &in.Variants[i], now)
		if len(load.Variants) > i {
			v.Weight = load.Variants[i].Weight
			v.Spare = spare(v, load.Variants[i].Usages, g.Saturation, g.Role)
			checkRole(v, load.Variants[i].Sample, g.Role)
			p.learn(v, &load.Variants[i], g)
		}
		slowest = max(slowest, v.Start)
	}
	if g.Load.State == snapshot.Found {
		seen := p.memory.Load(key, g.Load.Rate, p.p.Rates, slowest, now)
		g.Load.Recent, g.Load.Rate = g.Load.Rate, seen.Steady
		if p.p.Forecast {
			g.Forecast = seen.Ahead
		}
	}
}

// spare returns what the servers of a variant show of their saturation, or nil if nobody asks for it.
func spare(v *snapshot.Variant, uses []collect.Usage, t *snapshot.Thresholds, role snapshot.Role) *snapshot.Spare {
	if t == nil || v.Profile != nil || v.Problem != nil || len(uses) == 0 {
		return nil
	}
	made := &snapshot.Spare{Seen: len(uses)}
	for _, u := range uses {
		if role == snapshot.Prefill {
			u.KV = 0 // it keeps KV caches until decode servers have fetched them
		}
		if u.KV < t.KVCache && u.Waiting < t.QueueLength {
			made.Free++
			made.KV += (u.KV - made.KV) / float64(made.Free)
			made.Queue += (u.Waiting - made.Queue) / float64(made.Free)
		}
	}
	return made
}

// recall adds what earlier passes know of a variant. A new leader knows the last decision from the status, if there is one.
func (p *Passes) recall(v *snapshot.Variant, in *sources.Variant, now time.Time) {
	key := keyOf(v)
	if v.Previous, v.Decided = p.memory.Previous(key); !v.Decided {
		p.restore(v, in.Status, now)
	}
	if v.Problem != nil && v.Problem.Reason == sources.Paused {
		v.Previous = v.Now // nobody did what was decided, and nobody will
	}
	v.Tried, v.Trying = p.memory.Tried(key)
	v.Held = p.memory.Held(key, v.Now, now)
	pods := make([]memory.Pod, len(in.Pods))
	for i, pod := range in.Pods {
		pods[i] = memory.Pod{Name: pod.Name, Created: pod.Created, Ready: pod.Ready}
	}
	v.Start = p.memory.Start(key, pods, now)
}

// lastStatus is what a new leader reads in the status of a VariantAutoscaling.
type lastStatus struct {
	Start   int32 `json:"startSeconds"`
	Desired struct {
		Replicas *int32 `json:"numReplicas"`
		Update   struct {
			Reason decision.Reason `json:"reason"`
		} `json:"lastUpdate"`
	} `json:"desiredOptimizedAlloc"`
}

// maxStart is the longest start in seconds that counts of a status, as the schema has it.
const maxStart = 24 * 60 * 60

// restore adds what another replica of the program has written to the status of a VariantAutoscaling. Whoever may write the status can set any
// number: decisions keep bounds and limits, and starts that are seen displace this one.
func (p *Passes) restore(v *snapshot.Variant, status []byte, now time.Time) {
	key, last := keyOf(v), lastStatus{}
	if len(status) == 0 || json.Unmarshal(status, &last) != nil {
		return
	}
	if last.Start > 0 && last.Start <= maxStart {
		p.memory.RestoreStart(key, time.Duration(last.Start)*time.Second, now)
	}
	if last.Desired.Replicas == nil || *last.Desired.Replicas < 0 {
		return
	}
	n := int(*last.Desired.Replicas)
	p.memory.Restore(key, n, now)
	if last.Desired.Update.Reason == decision.Probing && n == 1 {
		p.memory.Try(key, now) // of another leader: it ends, too
	}
	v.Previous, v.Decided = n, true
}

// checkRole excludes a variant whose servers do not do what their role says: their figures would be taken for those of prefills.
func checkRole(v *snapshot.Variant, s *sample.Sample, role snapshot.Role) {
	if role == snapshot.Prefill && v.Problem == nil && s != nil && s.Output > snapshot.MostPrefillOutput {
		v.Problem = &snapshot.Problem{Reason: sources.RoleMismatch, Message: fmt.Sprintf(
			"the pods have the role prefill, and generate %.0f tokens for a request: set the label %s of the pod template to both, or let the picker send them prefills only", s.Output, sources.LabelRole)}
	}
}

// learn adds what the replicas of a variant were seen to serve.
func (p *Passes) learn(v *snapshot.Variant, seen *collect.VariantResult, g *snapshot.Group) {
	if v.Profile != nil || v.Problem != nil {
		return
	}
	key := learnerKey{keyOf(v), g.Role}
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
	if wanted.Any() && learn.Capacity(v.Measured, traffic, targets) == 0 {
		v.Stable = learner.Measured(queueing.Targets{})
	}
}
