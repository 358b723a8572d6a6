package pools

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"
)

// A Candidate is an InferencePool that the picker may serve.
type Candidate struct {
	Name    cache.ObjectName
	Created time.Time
	Address Address // of its endpointPickerRef; zero if it is not the port of a Service
}

// A Refusal is the reason why the picker does not serve a candidate.
type Refusal string

// The reasons, as in metrics.
const (
	Unaddressed Refusal = "address"  // no stream can name it
	Shadowed    Refusal = "conflict" // an older pool has its address
	Excess      Refusal = "limit"    // there are enough older pools
)

// Refusals are all reasons.
var Refusals = []Refusal{Unaddressed, Shadowed, Excess}

// ChoosePools returns the candidates to serve, at most limit, and the reasons why the others are not served. Older pools come
// first, because their users came first: whoever creates pools takes neither an address nor a place from another.
func ChoosePools(candidates []Candidate, limit int) (served []Candidate, refused map[cache.ObjectName]Refusal) {
	candidates = slices.Clone(candidates)
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name.String(), b.Name.String()))
	})
	owned := map[Address]bool{}
	refused = map[cache.ObjectName]Refusal{}
	for _, c := range candidates {
		switch {
		case c.Address == (Address{}):
			refused[c.Name] = Unaddressed
		case owned[c.Address]:
			refused[c.Name] = Shadowed
		case len(served) == limit:
			refused[c.Name] = Excess
		default:
			owned[c.Address] = true
			served = append(served, c)
		}
	}
	return served, refused
}
