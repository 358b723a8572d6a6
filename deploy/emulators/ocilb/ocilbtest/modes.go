package ocilbtest

import (
	"fmt"
	"maps"
	"slices"

	"fairlead.dev/deploy/emulators/ocilb"
)

// AllModes returns all combinations of what documents leave open, by a name of each.
func AllModes() map[string]*ocilb.Modes {
	all := map[string]*ocilb.Modes{}
	for _, concurrency := range []ocilb.Concurrency{ocilb.Queue, ocilb.Parallel, ocilb.Busy, ocilb.Conflict} {
		for _, change := range []ocilb.EtagChange{ocilb.AtCompletion, ocilb.AtAcceptance, ocilb.AtBoth} {
			for _, lenient := range []bool{false, true} {
				m := ocilb.DefaultOptions().Modes
				m.Concurrency, m.EtagChange = concurrency, change
				m.TokenFirst, m.TokenConflict, m.RefuseLate, m.NewestFirst = lenient, !lenient, !lenient, lenient
				name := fmt.Sprintf("%s, etag at %s", concurrency, change)
				if lenient {
					name += ", lenient"
				}
				all[name] = &m
			}
		}
	}
	return all
}

// SomeModes returns each mode of concurrency with each time at which the ETag changes, half of them lenient.
func SomeModes() map[string]*ocilb.Modes {
	all := AllModes()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i%4 == 0 || i%4 == 3 { // names with and without "lenient" alternate
			delete(all, name)
		}
	}
	return all
}
