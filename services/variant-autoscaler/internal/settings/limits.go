package settings

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"fairlead.dev/pkg/strictyaml"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

const (
	// DefaultMaxVariants is how many variants a namespace may have if no limit says so. The largest known fleets have some hundred; at ten
	// times as many, a single namespace could make passes slow for all.
	DefaultMaxVariants = 1000
	// EachNamespace is the namespace of a limit that applies to each namespace by itself. A limit of a namespace replaces it there.
	EachNamespace = "*"

	// maxLimits bounds the limits of a ConfigMap, and maxEach those of EachNamespace, which become one for each namespace. Each limit costs
	// the optimizer time for each variant.
	maxLimits = 500
	maxEach   = 10
	maxAmount = 1_000_000_000 // cards or replicas; no cluster has as many
)

// limitDocument is an entry of the limits: amounts that the matching variants may take together. Absent fields match all.
type limitDocument struct {
	Accelerator string            `yaml:"accelerator"`
	Namespace   string            `yaml:"namespace"`
	Priority    *int              `yaml:"priority"`
	Cards       *int64            `yaml:"cards"`
	Replicas    *int64            `yaml:"replicas"`
	Cost        strictyaml.Scalar `yaml:"cost"`     // as the costs of variants, per hour
	Variants    *int64            `yaml:"variants"` // of a namespace
}

// limitEntry is what a valid entry says.
type limitEntry struct {
	amounts   []snapshot.Limit
	namespace string
	variants  *int64
}

type limits struct {
	entries  map[string]limitEntry             // by key, for those that become invalid
	amounts  map[snapshot.Limit]snapshot.Limit // by what they limit
	sorted   []snapshot.Limit                  // what they limit
	variants map[string]int                    // by namespace
}

func parseLimits(data map[string]string, before map[string]limitEntry, w *warnings) limits {
	l := limits{entries: map[string]limitEntry{}, amounts: map[snapshot.Limit]snapshot.Limit{}, variants: map[string]int{}}
	each := 0
	for _, key := range sortedKeys(data) {
		entry, valid := parseLimit(key, data[key], w)
		if !valid {
			kept, found := before[key]
			if !found {
				continue
			}
			w.addWarning(ReasonInvalid, key, "the last valid limit of this key stays in force")
			entry = kept
		}
		more := 0
		if entry.namespace == EachNamespace {
			more = len(entry.amounts)
		}
		if len(l.amounts)+len(entry.amounts) > maxLimits || each+more > maxEach {
			w.addWarning(ReasonInvalid, key, "this limit is not in force: at most %d limits are possible, and %d of namespace %q; remove some",
				maxLimits, maxEach, EachNamespace)
			continue
		}
		each += more
		l.entries[key] = entry
		l.addEntry(key, entry, w)
	}
	l.sorted = slices.SortedFunc(maps.Keys(l.amounts), compareScopes)
	return l
}

// parseLimit refuses an entry with an unknown field: one that is spelled wrong would make the limit wider.
func parseLimit(key, text string, w *warnings) (limitEntry, bool) {
	document, decoded, err := decodeText(text, limitDocument{}, nil)
	var entry limitEntry
	if err == nil {
		entry = document.parseEntry(key, decoded)
		err = decoded.AllProblems()
	}
	w.addProblems(key, "this limit is invalid", problemsOf(err))
	return entry, err == nil
}

// parseEntry records problems of values in the document.
func (d *limitDocument) parseEntry(key string, document *strictyaml.Document) limitEntry {
	entry := limitEntry{namespace: d.Namespace, variants: d.Variants}
	base := snapshot.Limit{Name: key, Accelerator: d.Accelerator, Namespace: d.Namespace}
	if d.Priority != nil {
		base.Priority = *d.Priority
		requireRange(document, "priority", int64(base.Priority), 1, LowestPriority)
	}
	add := func(unit snapshot.Unit, amount *int64, most int64) {
		if amount == nil {
			return
		}
		requireRange(document, string(unit), *amount, 0, most)
		limit := base
		limit.Unit, limit.Amount = unit, *amount
		entry.amounts = append(entry.amounts, limit)
	}
	add(snapshot.Cards, d.Cards, maxAmount)
	add(snapshot.Replicas, d.Replicas, maxAmount)
	if d.Cost != "" {
		amount, err := ParseAmount(string(d.Cost))
		if err != nil {
			document.Errorf("cost", "%v", err)
		}
		add(snapshot.Cost, &amount, math.MaxInt64)
	}
	switch {
	case d.Variants == nil && len(entry.amounts) == 0:
		document.Errorf("", "it has none of cards, replicas, cost and variants")
	case d.Variants == nil:
	case d.Namespace == "" || d.Accelerator != "" || d.Priority != nil:
		document.Errorf("variants", "a number of variants is for a namespace, or for %q, without accelerator and priority", EachNamespace)
	default:
		requireRange(document, "variants", *d.Variants, 0, maxAmount)
	}
	return entry
}

// requireRange records a problem of a number that is out of range.
func requireRange(document *strictyaml.Document, field string, value, least, most int64) {
	if value < least || value > most {
		document.Errorf(field, "%d is not from %d to %d", value, least, most)
	}
}

// addEntry puts an entry in force. Of two limits with the same scope, the lower one counts.
func (l *limits) addEntry(key string, entry limitEntry, w *warnings) {
	for _, limit := range entry.amounts {
		scope := limit.ScopeKey()
		before, found := l.amounts[scope]
		if found {
			w.addWarning(ReasonInvalid, key, "%q limits the same %s: the lower one is in force; remove one of them", before.Name, limit.Unit)
		}
		if !found || limit.Amount < before.Amount {
			l.amounts[scope] = limit
		}
	}
	if entry.variants != nil {
		before, found := l.variants[entry.namespace]
		if !found || int(*entry.variants) < before {
			l.variants[entry.namespace] = int(*entry.variants)
		}
	}
}

func compareScopes(a, b snapshot.Limit) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Unit, b.Unit), cmp.Compare(a.Accelerator, b.Accelerator),
		cmp.Compare(a.Priority, b.Priority))
}

func (l *limits) forNamespaces(namespaces []string) []snapshot.Limit {
	namespaces = slices.Compact(slices.Sorted(slices.Values(namespaces)))
	var applying []snapshot.Limit
	for _, scope := range l.sorted {
		limit := l.amounts[scope]
		if scope.Namespace != EachNamespace {
			if _, found := slices.BinarySearch(namespaces, scope.Namespace); found || scope.Namespace == "" {
				applying = append(applying, limit)
			}
			continue
		}
		for _, namespace := range namespaces {
			scope.Namespace, limit.Namespace = namespace, namespace
			if _, replaced := l.amounts[scope]; !replaced {
				applying = append(applying, limit)
			}
		}
	}
	return applying
}

func (l *limits) maxVariants(namespace string) int {
	for _, name := range []string{namespace, EachNamespace} {
		if most, found := l.variants[name]; found {
			return most
		}
	}
	return DefaultMaxVariants
}
