// conformance runs the conformance suite of the Gateway API Inference Extension in an embedded Kubernetes: the endpoint picker behind
// Envoy Gateway and Envoy AI Gateway, from the suite's own manifests. It prints a table of the results, and fails if they differ from
// the expected ones. `make conformance` builds the images and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"fairlead.dev/deploy/local/e2e/conformance"
	"fairlead.dev/deploy/local/e2e/stack"
	"fairlead.dev/pkg/kubetest/cluster"
	"fairlead.dev/pkg/kubetest/clusterapi"
)

const expectedFile = "deploy/local/e2e/conformance/expected.yaml"

type options struct {
	suite   string
	version string
	out     string
	test    string
}

func main() {
	var o options
	pflag.StringVar(&o.suite, "suite", "", "image of the suite")
	pflag.StringVar(&o.version, "version", "dev", "version of the endpoint picker, for the report")
	pflag.StringVar(&o.out, "out", filepath.Join("bin", "conformance"), "folder for the report and the log of the suite")
	pflag.StringVar(&o.test, "test", "", "run only this test of the suite")
	pflag.Parse()
	if pflag.NArg() > 0 || o.suite == "" {
		fmt.Fprintln(os.Stderr, "conformance: want --suite=IMAGE and no arguments: see conformance --help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// run starts a cluster and runs the suite in it.
func run(ctx context.Context, o options, out io.Writer) error {
	expected, err := expectations(o.test)
	if err != nil {
		return err
	}
	root, err := cluster.Repository()
	if err != nil {
		return err
	}
	dir := filepath.Join(root, ".local", "conformance")
	c, err := cluster.Launch(ctx, cluster.Params{Config: clusterapi.Config{Dir: dir, Nodes: make([]clusterapi.Node, 1)}, Progress: out})
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	defer c.Stop()
	if err := check(ctx, c, o, expected, out); err != nil {
		return errors.Join(err, stack.SaveFailed(ctx, c, "conformance"))
	}
	return nil
}

// expectations returns the expected results of one test, or of all if test is empty.
func expectations(test string) (*conformance.Expectations, error) {
	all, err := conformance.Expected()
	if err != nil || test == "" {
		return all, err
	}
	one := all.Only(test)
	if len(conformance.Compare(one, nil)) == 0 {
		return nil, fmt.Errorf("the suite has no test %q: see %s", test, expectedFile)
	}
	return one, nil
}

// check runs the suite and compares its results with the expected ones.
func check(ctx context.Context, c *cluster.Cluster, o options, expected *conformance.Expectations, out io.Writer) error {
	started := time.Now()
	if err := prepare(ctx, c); err != nil {
		return err
	}
	fmt.Fprintf(out, "Installed Envoy Gateway and Envoy AI Gateway in %.0f s, running the suite\n", time.Since(started).Seconds())
	results, err := runSuite(ctx, c, o, out)
	if err != nil {
		return err
	}
	if o.test != "" { // the suite skips the others
		results = slices.DeleteFunc(results, func(r conformance.Result) bool { return r.Test != o.test })
	}
	rows := conformance.Compare(expected, results)
	fmt.Fprintln(out)
	if err := conformance.WriteTable(out, rows); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nreport: %s\n", filepath.Join(o.out, reportFile))
	if n := conformance.Differences(rows); n > 0 {
		return fmt.Errorf("%d tests differ from %s", n, expectedFile)
	}
	return nil
}
