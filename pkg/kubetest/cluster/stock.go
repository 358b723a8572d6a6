package cluster

import (
	"context"
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"fairlead.dev/pkg/kubetest"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

// Stock lends API servers to the tests of a package, each to one test at a time. An API server takes several seconds to start, so tests
// reuse them: there are as many as tests that run at the same time.
type Stock struct {
	Prepare func(tb testing.TB, c *Cluster)             // runs after the start of an API server, if set
	Empty   func(ctx context.Context, c *Cluster) error // deletes everything that a test may have created
	Audit   bool                                        // the API servers have audit logs

	mu   sync.Mutex
	free []*Cluster
	dirs []string
}

// BorrowCluster returns an API server without objects of other tests. No other test uses it until this test ends.
func (s *Stock) BorrowCluster(tb testing.TB) *Cluster {
	tb.Helper()
	s.mu.Lock()
	var c *Cluster
	if last := len(s.free) - 1; last >= 0 {
		c, s.free = s.free[last], s.free[:last]
	}
	s.mu.Unlock()
	if c == nil {
		c = s.launchCluster(tb)
	}
	tb.Cleanup(func() { s.giveBack(tb, c) })
	return c
}

func (s *Stock) launchCluster(tb testing.TB) *Cluster {
	tb.Helper()
	dir, err := os.MkdirTemp("", "localkube-")
	if err != nil {
		tb.Fatal(err)
	}
	s.mu.Lock()
	s.dirs = append(s.dirs, dir)
	s.mu.Unlock()
	c, err := Launch(tb.Context(), Params{Config: clusterapi.Config{Dir: dir, ControlPlaneOnly: true, Audit: s.Audit}})
	if err != nil {
		tb.Fatalf("cluster: %v", err)
	}
	if s.Prepare != nil {
		s.Prepare(tb, c)
	}
	return c
}

// giveBack empties an API server for the next test. If this fails, giveBack stops it.
func (s *Stock) giveBack(tb testing.TB, c *Cluster) {
	tb.Helper()
	if tb.Failed() {
		c.SaveArtifacts(tb)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kubetest.Patience) // the context of the test has ended
	defer cancel()
	if err := s.Empty(ctx, c); err != nil {
		tb.Errorf("empty the API server: %v", err)
		c.Stop()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, c)
}

// Suite is the tests of a package that share a Stock. It implements TestingM of goleak.
type Suite struct {
	M     *testing.M
	Stock *Stock
	// the number of tests that run at the same time, each with an API server, unless -test.parallel is given: tests mostly wait
	Parallel int
}

// Run runs the tests, and stops their API servers.
func (s Suite) Run() int {
	if err := flag.Set("test.parallel", strconv.Itoa(s.Parallel)); err != nil { // M.Run reads the command line after this
		panic(err)
	}
	defer s.Stock.Stop()
	return s.M.Run()
}

// Stop stops all idle API servers, and removes the directories of all.
func (s *Stock) Stop() {
	for _, c := range s.free {
		c.Stop()
	}
	for _, dir := range s.dirs {
		_ = os.RemoveAll(dir)
	}
}
