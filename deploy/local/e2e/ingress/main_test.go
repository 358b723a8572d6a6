package ingress_test

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// parallel is the number of tests at a time, whatever the number of processors: they wait for holds and data planes far longer than
// they compute. It is the number of those that there are.
const parallel = 20

// beside is held by the tests with a cluster of their own that run beside TestReconciler: one at a time. More clusters than two would only
// take the processors from each other.
var beside sync.Mutex

// takeTurn waits until no other test runs beside TestReconciler.
func takeTurn(t *testing.T) {
	t.Helper()
	t.Parallel()
	beside.Lock()
	t.Cleanup(beside.Unlock)
}

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(parallel)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
