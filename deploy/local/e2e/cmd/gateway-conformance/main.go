// gateway-conformance runs the conformance suite of the Gateway API against the backendset-syncer: an API server, an emulator of OCI Load
// Balancers whose listeners forward requests at addresses of the loopback interface, and backends in the place of pods. It prints a
// table of the results, and fails if they differ from the expected ones. `make gateway-conformance` builds the programs and runs it.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/local/e2e/conformance"
)

const expectedFile = "deploy/local/e2e/conformance/gateway.yaml"

type options struct {
	suite   string
	program string
	crds    []string
	version string
	out     string
	test    string
}

func main() {
	var o options
	pflag.StringVar(&o.suite, "suite", "", "test binary of the suite")
	pflag.StringVar(&o.program, "program", "", "binary of the backendset-syncer")
	pflag.StringSliceVar(&o.crds, "crds", nil, "files with the kinds that the API server serves")
	pflag.StringVar(&o.version, "version", "dev", "version of the program, for the report")
	pflag.StringVar(&o.out, "out", filepath.Join("bin", "gateway-conformance"), "folder for the report and for logs")
	pflag.StringVar(&o.test, "test", "", "run only this test of the suite")
	pflag.Parse()
	if pflag.NArg() > 0 || o.suite == "" || o.program == "" || len(o.crds) == 0 {
		fmt.Fprintln(os.Stderr, "gateway-conformance: want --suite=FILE, --program=FILE and --crds=FILE,...: see gateway-conformance --help")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gateway-conformance:", err)
		os.Exit(1)
	}
}

// run starts a world, runs the suite in it and compares its results with the expected ones.
func run(ctx context.Context, o options, out io.Writer) error {
	expected, err := expectations(o.test)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := newWorld(ctx, &o)
	if err != nil {
		return err
	}
	defer w.stop()
	results, err := w.runSuite(ctx, &o, expected, out)
	if err != nil {
		return err
	}
	if err := checkPermissions(filepath.Join(o.out, programLog)); err != nil {
		return err
	}
	if o.test != "" { // the suite skips the others
		results = slices.DeleteFunc(results, func(r conformance.Result) bool { return r.Test != o.test })
	}
	results = slices.DeleteFunc(results,
		func(r conformance.Result) bool { return r.Outcome == conformance.Skip && !expected.Skips(r.Test) })
	rows := conformance.Compare(expected, results)
	fmt.Fprintln(out)
	if err := conformance.WriteTable(out, rows); err != nil {
		return err
	}
	if n := conformance.Differences(rows); n > 0 {
		return fmt.Errorf("%d tests differ from %s: see %s", n, expectedFile, o.out)
	}
	if o.test != "" {
		return nil
	}
	return compareReports(filepath.Join(o.out, reportFile), out)
}

// expectations returns the expected results of one test, or of all if test is empty.
func expectations(test string) (*conformance.Expectations, error) {
	all, err := conformance.ExpectedOfGateways()
	if err != nil || test == "" {
		return all, err
	}
	one := all.Only(test)
	if len(conformance.Compare(one, nil)) == 0 {
		return nil, fmt.Errorf("%s has no test %q", expectedFile, test)
	}
	return one, nil
}

// compareReports compares the report of a run with the one that the repository keeps. Date and version differ.
func compareReports(file string, out io.Writer) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("the suite wrote no report: %w", err)
	}
	report, err := conformance.ParseReport(text)
	if err != nil {
		return err
	}
	kept, err := conformance.KeptReport()
	if err != nil {
		return err
	}
	if difference := kept.Difference(report); difference != "" {
		return fmt.Errorf("the report differs from %s: %s: copy %s there, and write the table in the documents anew: go test ./conformance -update", conformance.ReportFile, difference, file)
	}
	fmt.Fprintf(out, "\nreport: %s, as it is kept in %s\n", file, conformance.ReportFile)
	return nil
}

// suiteOptions are the options of the suite, by the names of its fields.
func suiteOptions(o *options, expected *conformance.Expectations) ([]byte, error) {
	var skipped []string
	for _, x := range expected.Skip {
		skipped = append(skipped, x.Test)
	}
	seconds := func(n int64) int64 { return n * 1_000_000_000 }
	all := map[string]any{
		"gatewayClassName": gatewayClass, "conformanceProfiles": []string{"GATEWAY-HTTP"}, "supportedFeatures": expected.Features,
		"skipTests": skipped, "cleanupBaseResources": false, // the world ends with the suite
		"cleanupTestResources": true, "reportOutputPath": filepath.Join(o.out, reportFile), "mode": "default",
		"disableParallelTests": true, // two cores
		"implementation": map[string]any{
			"organization": "fairlead", "project": "backendset-syncer", "url": "https://fairlead.dev", "version": o.version,
			"contact": []string{"https://fairlead.dev"},
		},
		"timeoutConfig": map[string]any{"maxTimeToConsistency": seconds(maxTimeToConsistency)},
	}
	if o.test != "" {
		all["runTest"] = o.test
	}
	text, err := yaml.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode options of the suite: %w", err)
	}
	return text, nil
}

// maxTimeToConsistency is the limit that the Gateway API sets, in seconds.
const maxTimeToConsistency = 30
