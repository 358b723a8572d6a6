package decision

import (
	"slices"
	"sort"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxMixed is the most variants with further replicas that are compared with each other where a variant can get several flavors. Beyond
// it, such a variant gets what every one of its flavors has left.
const maxMixed = 256

// admitter counts the quotas that further replicas take, where it is not known in which order Kueue takes pods, nor which of their flavors
// it gives them: all replicas of a variant could get any one of them. So a variant has the replicas of each flavor that are left beside all
// that others can take of it.
type admitter struct {
	tree         *quotaTree // with the largest use of further replicas: it may exceed a quota
	reservations []reservation
	mixed        bool // a reservation can get several flavors
}

// reservation is the quota of the further replicas of a variant.
type reservation struct {
	pods     *snapshot.Pods
	replicas int64
}

// admissibleReplicas returns how many of some further replicas of a variant Kueue admits in any case, so that it still admits the
// reservations.
func (a *admitter) admissibleReplicas(p *snapshot.Pods, wanted int64) int64 {
	n := min(wanted, a.tree.roomForVariant(p))
	switch {
	case n <= 0:
		return 0
	case !a.mixed && len(p.Quotas) == 1: // a sum that a tree has room for is admitted in any order
		return n
	case len(a.reservations) > maxMixed:
		for _, i := range p.Quotas {
			n = min(n, a.tree.fittingReplicas(i, p))
		}
		return n
	}
	return int64(sort.Search(int(n), func(k int) bool { return !a.canAdmit(p, int64(k)+1) }))
}

// canAdmit reports whether Kueue still admits all reservations beside replicas of another variant.
func (a *admitter) canAdmit(p *snapshot.Pods, replicas int64) bool {
	a.tree.addReplicas(p, replicas)
	defer a.tree.addReplicas(p, -replicas)
	for i := range a.reservations {
		t := &a.reservations[i]
		if t.pods == p {
			continue
		}
		a.tree.addReplicas(t.pods, -t.replicas)
		room := a.tree.roomForVariant(t.pods)
		a.tree.addReplicas(t.pods, t.replicas)
		if room < t.replicas {
			return false
		}
	}
	return true
}

// reserveQuota reserves quotas for further replicas.
func (a *admitter) reserveQuota(p *snapshot.Pods, replicas int64) {
	if replicas <= 0 || len(p.Quotas) == 0 {
		return
	}
	a.tree.addReplicas(p, replicas)
	a.mixed = a.mixed || len(p.Quotas) > 1
	if i := slices.IndexFunc(a.reservations, func(t reservation) bool { return t.pods == p }); i >= 0 {
		a.reservations[i].replicas += replicas
		return
	}
	a.reservations = append(a.reservations, reservation{p, replicas})
}
