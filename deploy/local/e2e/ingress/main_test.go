package ingress_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// parallel is the number of tests at a time, whatever the number of processors: they wait for holds and data planes far longer than
// they compute. It is the number of those that there are.
const parallel = 20

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(parallel)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
