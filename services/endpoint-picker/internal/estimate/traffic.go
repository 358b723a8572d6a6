package estimate

import (
	"sync"
)

// loadShare is the share of the load of a pool that this picker did not place. Usually its other replicas did.
type loadShare struct {
	mu            sync.Mutex    // serializes writers, so that both means have the same weights
	others, total movingAverage // requests on pages
}

// observePage records the requests of one page, and how many of them others placed.
func (s *loadShare) observePage(others, total float64) {
	if total <= 0 {
		return // an empty page has no information
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others.addSample(others, shareWeight)
	s.total.addSample(total, shareWeight)
}

// placedByOthers returns the share that others placed, 0 to 1. Between two stores of a writer it is one page old in one of
// its means, which does not matter.
func (s *loadShare) placedByOthers() float64 {
	total := s.total.Load()
	if total <= 0 {
		return 0
	}
	return min(s.others.Load()/total, 1)
}
