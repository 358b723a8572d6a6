package pools

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"fairlead.dev/pkg/ownership"
)

// A candidate is an InferencePool that the picker may serve.
type candidate struct {
	ownership.Age

	address address // of its endpointPickerRef; zero if it is not the port of a Service
}

// The reasons why the picker does not serve a candidate, as in metrics.
const (
	unaddressed = "address"  // no stream can name it
	shadowed    = "conflict" // an older pool has its address
	excess      = "limit"    // there are enough older pools
)

// choosePools returns the candidates to serve, at most limit, and the reasons why the others are not served. Older pools come
// first, because their users came first: whoever creates pools takes neither an address nor a place from another.
func choosePools(candidates []candidate, limit int) (served []candidate, refused map[types.NamespacedName]string) {
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, func(a, b candidate) int { return a.Compare(b.Age) })
	owned := map[address]bool{}
	refused = map[types.NamespacedName]string{}
	for _, c := range candidates {
		switch {
		case c.address == (address{}):
			refused[c.Name] = unaddressed
		case owned[c.address]:
			refused[c.Name] = shadowed
		case len(served) == limit:
			refused[c.Name] = excess
		default:
			owned[c.address] = true
			served = append(served, c)
		}
	}
	return served, refused
}
