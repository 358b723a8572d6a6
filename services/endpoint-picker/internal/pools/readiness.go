package pools

import (
	"errors"
	"sync"
	"time"

	"fairlead.dev/services/endpoint-picker/internal/pool"
)

// startLimit is the maximum time to wait for pools after they were found. It is longer than a pool that has its pods waits for pages and
// for contents (package replicas: 7 s).
const startLimit = 10 * time.Second

// startingPools are the pools that the process has found when it started, until each is ready once. It is safe for concurrent use.
type startingPools struct {
	mu      sync.Mutex
	waiting map[string]func() error // by title: checks whether the pool is ready
	until   time.Time
}

// addPool adds a pool to wait for.
func (s *startingPools) addPool(title string, check func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting, s.until = map[string]func() error{}, time.Now().Add(startLimit)
	}
	s.waiting[title] = check
}

// removePool ends the wait for a pool that is not served anymore.
func (s *startingPools) removePool(title string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, title)
}

// CheckReady returns the error of a pool that is not ready yet. A missing pool must not make the others unready.
func (s *startingPools) CheckReady() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for title, check := range s.waiting {
		if err := check(); err != nil && !errors.Is(err, pool.ErrNoPool) && time.Now().Before(s.until) {
			return err
		}
		delete(s.waiting, title)
	}
	return nil
}
