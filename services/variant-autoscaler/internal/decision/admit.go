package decision

import (
	"slices"
	"sort"

	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// maxMixed is the most variants with further replicas that are compared with each other where a variant can get several flavors. Beyond
// it, such a variant gets what every one of its flavors has left.
const maxMixed = 256

// admitter counts the quotas that further replicas take, where nobody knows in which order Kueue takes pods, nor which of their flavors it
// gives them: all replicas of a variant could get any one of them. So a variant has the replicas of each flavor that are left beside all
// that others can take of it.
type admitter struct {
	tree   *quotaTree // with all that further replicas can take: it may be more than a quota has
	takers []taker
	mixed  bool // a taker can get several flavors
}

// taker is a variant with further replicas.
type taker struct {
	pods     *snapshot.Pods
	replicas int64
}

func newAdmitter(s *snapshot.Snapshot) *admitter { return &admitter{tree: newQuotaTree(s.Quotas)} }

// room returns how many of some further replicas of a variant Kueue admits in any case, beside those that were taken, and so that it admits
// these, too.
func (a *admitter) room(p *snapshot.Pods, wanted int64) int64 {
	n := min(wanted, a.tree.room(p))
	switch {
	case n <= 0:
		return 0
	case !a.mixed && len(p.Quotas) == 1: // a sum that a tree has room for is admitted in any order
		return n
	case len(a.takers) > maxMixed:
		for _, i := range p.Quotas {
			n = min(n, a.tree.replicas(i, p))
		}
		return n
	}
	return int64(sort.Search(int(n), func(k int) bool { return !a.fits(p, int64(k)+1) }))
}

// fits reports whether all that was taken is still admitted beside replicas of another variant.
func (a *admitter) fits(p *snapshot.Pods, replicas int64) bool {
	a.tree.useAll(p, replicas)
	defer a.tree.useAll(p, -replicas)
	for i := range a.takers {
		t := &a.takers[i]
		if t.pods == p {
			continue
		}
		a.tree.useAll(t.pods, -t.replicas)
		room := a.tree.room(t.pods)
		a.tree.useAll(t.pods, t.replicas)
		if room < t.replicas {
			return false
		}
	}
	return true
}

// take takes quotas for further replicas.
func (a *admitter) take(p *snapshot.Pods, replicas int64) {
	if replicas <= 0 || len(p.Quotas) == 0 {
		return
	}
	a.tree.useAll(p, replicas)
	a.mixed = a.mixed || len(p.Quotas) > 1
	if i := slices.IndexFunc(a.takers, func(t taker) bool { return t.pods == p }); i >= 0 {
		a.takers[i].replicas += replicas
		return
	}
	a.takers = append(a.takers, taker{p, replicas})
}
