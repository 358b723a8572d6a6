package sources

import (
	"cmp"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/ownership"
	"fairlead.dev/services/variant-autoscaler/internal/informers"
	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// sourceRank orders sources: the lowest wins.
var sourceRank = map[snapshot.Source]int{
	snapshot.VariantAutoscaling: 0, snapshot.ScaledObject: 1, snapshot.HorizontalPodAutoscaler: 2,
}

func (v *Variant) age() ownership.Age {
	return ownership.Age{Created: v.Created, Name: types.NamespacedName{Namespace: v.Namespace, Name: v.Name}}
}

// compareAge orders variants by their age, those of one name and second by their source.
func compareAge(a, b *Variant) int {
	return cmp.Or(a.age().Compare(b.age()), cmp.Compare(sourceRank[a.Source], sourceRank[b.Source]))
}

// admitVariants rejects variants whose target or name another one has, and those beyond the limit of a namespace, newest first. It returns
// all of them, oldest first.
func admitVariants(variants []*Variant, perNamespace func(namespace string) int) []*Variant {
	slices.SortFunc(variants, func(a, b *Variant) int {
		return cmp.Or(cmp.Compare(sourceRank[a.Source], sourceRank[b.Source]), compareAge(a, b))
	})
	names, targets := map[[2]string]*Variant{}, map[informers.Owner]*Variant{}
	for _, v := range variants {
		name, target := [2]string{v.Namespace, v.Name}, v.targetOwner()
		switch {
		case target.Name != "" && targets[target] != nil:
			winner := targets[target]
			v.rejectWith(snapshot.TargetConflict, "%s %s has the same target and decides for it: delete one of the two, or remove the annotation %s",
				winner.Source, winner.Name, informers.AnnotationManaged)
			if len(winner.Notes) == 0 { // one is enough: there can be thousands of others
				winner.addNote(snapshot.ConflictResolved, "%s %s has the same target, and is ignored: delete one of the two", v.Source, v.Name)
			}
		case names[name] != nil:
			v.rejectWith(snapshot.NameConflict, "%s %s has the same name, so their metrics would be the same: rename one of the two", names[name].Source,
				v.Name)
		default:
			names[name], targets[target] = v, v
		}
	}
	slices.SortFunc(variants, compareAge)
	limitNumber(variants, perNamespace)
	return variants
}

// limitNumber rejects the newest variants of namespaces with more than they may have. If all namespaces together have more than the
// optimizer takes, those with the most lose theirs first: no number of strangers' variants removes those of a namespace with few.
func limitNumber(variants []*Variant, perNamespace func(namespace string) int) {
	counts := map[string]int{}
	for _, v := range variants {
		if v.Problem == nil {
			counts[v.Namespace]++
		}
	}
	for namespace := range counts {
		counts[namespace] = min(counts[namespace], max(perNamespace(namespace), 0))
	}
	level, total := max(fairLevel(slices.Collect(maps.Values(counts)), optimizer.MaxVariants), 1), 0
	seen := map[string]int{}
	for _, v := range variants {
		if v.Problem != nil {
			continue
		}
		seen[v.Namespace]++
		switch n, most := seen[v.Namespace], perNamespace(v.Namespace); {
		case n > most:
			v.rejectWith(snapshot.LimitExceeded, "the namespace has more than %d variants: delete some, or ask an administrator for a larger limit", most)
		case n > level, total == optimizer.MaxVariants:
			v.rejectWith(snapshot.LimitExceeded, "all namespaces together have more than %d variants, and this one more than %d: delete some",
				optimizer.MaxVariants, level)
		default:
			total++
		}
	}
}

// fairLevel returns the largest level so that the amounts, each at most the level, make no more than most.
func fairLevel[N int | int64](amounts []N, most N) N {
	rest := most
	for i, n := range slices.Sorted(slices.Values(amounts)) { // those before are at most the level
		if level := rest / N(len(amounts)-i); n > level {
			return level
		}
		rest -= n
	}
	return most
}
