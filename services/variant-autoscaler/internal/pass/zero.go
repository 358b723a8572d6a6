package pass

import (
	"slices"
	"time"

	"fairlead.dev/services/variant-autoscaler/internal/collect"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
	"fairlead.dev/services/variant-autoscaler/internal/sources"
)

// beginWaits begins an evaluation of the requests that wait for models that may have no replicas.
func (p *Passes) beginWaits(snap *snapshot.Snapshot) {
	if p.p.Waits == nil {
		return
	}
	var models []snapshot.ModelKey
	for i := range snap.Groups {
		if g := &snap.Groups[i]; g.Zero.Enabled && g.Pool != "" {
			models = append(models, g.ModelKey())
		}
	}
	p.p.Waits.WatchModels(models)
}

// addWaits adds the load of a group, with what pickers say themselves of requests that wait. They are as many as in Prometheus, and newer.
// Where servers have roles, what no server has yet is no load of those for whole requests.
func (p *Passes) addWaits(snap *snapshot.Snapshot, i int, load *collect.Result) {
	g := &snap.Groups[i]
	g.Load, g.Zero.Waiting, g.Zero.Watched = load.Load, load.Waited, load.Picker
	g.Zero.Requests, g.Zero.RequestsMessage = load.Requests, load.RequestsMessage
	if p.p.Waits == nil || !g.Zero.Enabled || g.Pool == "" {
		return
	}
	now, since, watched := p.p.Waits.CountWaiting(g.ModelKey())
	if first, end := snap.ModelGroups(i); g.Role != snapshot.Aggregated || !hasPair(snap.Groups[first:end]) {
		g.Load.Queued = max(g.Load.Queued, float64(now))
	}
	g.Zero.Waiting, g.Zero.Watched = max(g.Zero.Waiting, float64(since)), g.Zero.Watched || watched
}

// hasPair reports whether the groups of a model have prefill and decode servers.
func hasPair(stages []snapshot.Group) bool {
	has := func(role snapshot.Role) bool {
		return slices.ContainsFunc(stages, func(g snapshot.Group) bool { return g.Role == role })
	}
	return has(snapshot.Prefill) && has(snapshot.Decode)
}

// addReadiness adds since when a group has had a ready replica, or others that start. Replicas that were decided count, too: if nobody
// makes them, they do not become ready either.
func (p *Passes) addReadiness(g *snapshot.Group, in *sources.Group, now time.Time) {
	ready, present, since := 0, 0, time.Time{}
	for i := range in.Variants {
		v := &in.Variants[i]
		ready, present = ready+v.Ready, present+v.Now
		if known := p.memory.VariantFor(v.Key(), now); known.Decided && v.Problem == nil {
			present += known.Previous
		}
		for _, pod := range v.Pods {
			if !pod.Ready.IsZero() && (since.IsZero() || pod.Ready.Before(since)) {
				since = pod.Ready
			}
		}
	}
	if ready > 0 {
		g.Zero.ServesSince = p.memory.GroupFor(g.Key(), now).RecordServing(since, now)
	} else {
		g.Zero.StartsSince = p.memory.GroupFor(g.Key(), now).RecordStarting(present, now)
	}
}

// alignStages sets since when the groups of a model serve, and when they last changed, to what is true of the model: they go to zero
// together.
func alignStages(stages []snapshot.Group) {
	serves, changed := servesSince(stages), time.Time{}
	for i := range stages {
		if changedAt := stages[i].Zero.Changed; changedAt.After(changed) {
			changed = changedAt
		}
	}
	for i := range stages {
		stages[i].Zero.Changed, stages[i].Zero.ServesSince = changed, serves
	}
}

// servesSince returns since when the groups of a model serve it: all roles together, or servers of whole requests. Zero: they do not.
func servesSince(stages []snapshot.Group) time.Time {
	var aggregated, roles time.Time
	part := false // of the roles does not serve
	for i := range stages {
		switch since := stages[i].Zero.ServesSince; {
		case stages[i].Role == snapshot.Aggregated:
			aggregated = since
		case since.IsZero():
			part = true
		case since.After(roles):
			roles = since
		}
	}
	if part || roles.IsZero() || !aggregated.IsZero() && aggregated.Before(roles) {
		return aggregated
	}
	return roles
}
