package actor

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	"fairlead.dev/pkg/apis/fairlead/v1alpha1"
	"fairlead.dev/services/backendset-syncer/internal/plan"
)

const (
	// manyRepairs is the number of repairs in a row after which a report names them.
	manyRepairs = 3
	// earlyNotice is how long a report says that draining backends were removed early: users look at conditions after a roll-out.
	earlyNotice = 10 * time.Minute
	// maxListed bounds lists of names in messages.
	maxListed = 5
)

// Report is the state of a set. It must not be changed.
type Report struct {
	Synced          bool
	Reason, Message string

	Active, Draining, Waiting int
	Early, Excess             int // draining backends that were removed early a short time ago, and ready endpoints without room
	// Since is the time of the oldest change that the set does not have yet; zero: it has all.
	Since time.Time
	// Known means that the load balancer was read, and the counts are right.
	Known bool
	// Gone means that the load balancer has no backend set of this name.
	Gone bool
	// Foreign is the number of backends that are not endpoints, of a set that is only watched.
	Foreign int
	// Serving has the backends that the load balancer reports as healthy, or whose health is not known because no listener uses the
	// set.
	Serving map[netip.AddrPort]bool
	// HoldsVanished means that the set is not synced only because it holds backends without an endpoint.
	HoldsVanished bool
	// Used means that requests can reach the set.
	Used bool

	wanted *Wanted // that it is about
}

// publishReports replaces the reports that have changed.
func (a *actor) publishReports() {
	changed := map[string]*Report{}
	a.mu.Lock()
	for name, s := range a.sets {
		if a.inbox.sets[name] == nil {
			continue // dropped meanwhile
		}
		// A report is about the newest Wanted, even if nothing else has changed.
		if r, last := a.buildReport(s), a.reports[name]; last == nil || r.wanted != last.wanted || !reflect.DeepEqual(r, last) {
			a.reports[name] = r
			changed[name] = r
		}
	}
	a.mu.Unlock()
	a.publishLayout()
	for name, r := range changed {
		key := Key{LoadBalancer: a.id, Set: name}
		a.p.Observer.ObserveReport(key, r)
		a.p.Changed(key)
	}
}

// buildReport returns the report of a set.
func (a *actor) buildReport(s *set) *Report {
	r := &Report{wanted: s.desired, Serving: map[netip.AddrPort]bool{}, Since: s.behindSince()}
	if s.live != nil && s.desired.Watching {
		r.Known, r.Foreign = true, len(s.foreign)
	}
	if s.live != nil && s.target != nil {
		r.Known, r.Serving, r.Used = true, s.health.servingBackends(), a.current.IsUsed(s.name)
		r.Active = len(s.health.active)
		r.Draining = len(s.live.Backends) - r.Active
		r.Excess = len(s.target.Excess)
		if s.early > 0 && a.p.Clock.Since(s.earlyAt) < earlyNotice {
			r.Early = s.early
		}
		for _, address := range s.target.Active {
			if !s.health.active[address] {
				r.Waiting++
			}
		}
		r.Waiting += r.Excess
	}
	r.Gone = s.problem.Reason == v1alpha1.ReasonBackendSetNotFound
	p := a.problemOf(s, r)
	r.Synced, r.Reason, r.Message = !p.IsSet(), v1alpha1.ReasonSynced, "the backend set has "+formatCount(r.Active, "active backend")
	if p.IsSet() {
		r.Reason, r.Message = p.Reason, p.Message
	} else if r.Early > 0 {
		r.Message += fmt.Sprintf("; %s removed before the end of their drain time, because the limit of backends is reached",
			formatCount(r.Early, "draining backend was", "draining backends were"))
	}
	return r
}

// problemOf returns why a set is not synced.
func (a *actor) problemOf(s *set, r *Report) plan.Problem {
	if p := cmp.Or(a.writes.problem, a.reads.problem, s.problem); p.IsSet() {
		return p
	}
	inProgress := a.pending != nil && a.pending.step == nil && a.pending.name == s.name
	switch {
	case !r.Known:
		return a.pendingProblem("the load balancer was not read yet")
	case r.Foreign > 0:
		return plan.NewProblem(v1alpha1.ReasonConflict,
			"the backend set has %s of the Service: %s. Remove them, or ask the administrator to set takeOver for this load balancer in "+
				"the configuration",
			formatCount(r.Foreign, "backend that is not an endpoint", "backends that are not endpoints"), formatList(s.foreign))
	case s.desired.Watching:
		return a.pendingProblem("the binding takes the backend set")
	case r.Excess > 0:
		return plan.NewProblem(v1alpha1.ReasonCapacityExceeded,
			"%s no room in the backend set: its limit, that of the load balancer or that of the namespace is reached; raise the limit or "+
				"use another load balancer",
			formatCount(r.Excess, "ready endpoint has", "ready endpoints have"))
	case s.isFought():
		return plan.NewProblem(v1alpha1.ReasonDrifting,
			"another client changes the backends again and again (%d repairs); the next repair is at %s. Remove oci_load_balancer_backend "+
				"resources of this set from Terraform, and other controllers that write it",
			s.repairs, s.repairAt.UTC().Format(time.RFC3339))
	case !s.dirty.IsZero() || inProgress:
		return a.pendingProblem("changes wait")
	}
	return s.settledProblem(r)
}

// settledProblem returns the problem of a set that needs no write. It sets HoldsVanished in the report.
func (s *set) settledProblem(r *Report) plan.Problem {
	held := 0
	for _, l := range s.target.Draining {
		if l.Vanished {
			held++
		}
	}
	if r.HoldsVanished = held > 0; r.HoldsVanished {
		return plan.NewProblem(v1alpha1.ReasonPending, "%s for %s: endpoints that vanish may come back",
			formatCount(held, "backend has no endpoint, and stays", "backends have no endpoint, and stay"), plan.VanishGracePeriod)
	}
	return s.health.unreachableProblem()
}

// isFought reports whether another client undoes the changes of the set.
func (s *set) isFought() bool { return !s.dirty.IsZero() && s.repairs >= manyRepairs && s.isRepair() }

// unreachableProblem returns the problem of backends that the load balancer cannot reach.
func (h *health) unreachableProblem() plan.Problem {
	n := len(h.failingBackends())
	if n == 0 || h.failed == "" {
		return plan.Problem{}
	}
	return plan.NewProblem(v1alpha1.ReasonBackendsUnreachable,
		"the load balancer reports %s as critical: %s. Check that pods have addresses of the VCN (VCN-native pod networking) and that "+
			"network security groups and security lists permit the load balancer's subnets to reach them",
		formatCount(n, "backend of a ready pod", "backends of ready pods"), h.failed)
}

func (a *actor) pendingProblem(text string) plan.Problem {
	switch {
	case a.waiting != "":
		text = a.waiting
	case a.pending != nil:
		text = fmt.Sprintf("work request %s (%s of %s) is in progress", a.pending.id, a.pending.Operation(), a.pending.name)
	}
	return plan.Problem{Reason: v1alpha1.ReasonPending, Message: text}
}

// formatCount formats a number with its noun.
func formatCount(n int, forms ...string) string {
	if len(forms) == 1 {
		forms = append(forms, forms[0]+"s")
	}
	if n == 1 {
		return "1 " + forms[0]
	}
	return fmt.Sprintf("%d %s", n, forms[1])
}

// formatList formats names, the first few of many.
func formatList(names []string) string {
	if len(names) > maxListed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return strings.Join(names, ", ")
}
