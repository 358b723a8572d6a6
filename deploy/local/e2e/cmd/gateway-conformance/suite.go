package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"fairlead.dev/deploy/local/e2e/conformance"
)

const (
	reportFile = "report.yaml"
	logFile    = "suite.log"

	// suiteTimeout limits the suite, which takes about five minutes.
	suiteTimeout = 40 * time.Minute
	// maxLine is the longest line of the suite's log, which has whole objects.
	maxLine = 4 << 20
)

// runSuite runs the suite, and returns the results of all tests and subtests.
func (w *world) runSuite(ctx context.Context, o *options, expected *conformance.Expectations, out io.Writer) ([]conformance.Result, error) {
	report := filepath.Join(o.out, reportFile)
	if err := os.RemoveAll(report); err != nil { // of an earlier run
		return nil, err
	}
	text, err := suiteOptions(o, expected)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(w.dir, "options.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.out, logFile))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, suiteTimeout)
	defer cancel()
	suite := exec.CommandContext(ctx, o.suite, "-test.v=test2json", "-test.timeout="+suiteTimeout.String(),
		"--conformance-options-file="+file)
	suite.Env = append(os.Environ(), "KUBECONFIG="+w.cluster.Kubeconfig)
	suite.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := suite.StdoutPipe()
	if err != nil {
		return nil, err
	}
	suite.Stderr = log
	if err := suite.Start(); err != nil {
		return nil, fmt.Errorf("start the suite: %w", err)
	}
	results, complete, err := readResults(io.TeeReader(stdout, log), out)
	if err != nil {
		return nil, err
	}
	_ = suite.Wait() // it exits with 1 if a test fails
	switch {
	case w.failure() != nil:
		return nil, w.failure()
	case !complete:
		return nil, fmt.Errorf("the suite did not finish: see %s", log.Name())
	}
	return results, nil
}

// readResults reads the output of the suite, and writes the results of tests to out. The output is complete if it has the result of the
// suite as a whole.
func readResults(from io.Reader, out io.Writer) (results []conformance.Result, complete bool, err error) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		r, ok := conformance.ParseLine(scanner.Text())
		switch {
		case !ok:
			continue
		case r.Test == "":
			complete = true
		case r.Subtest == "" && r.Outcome != conformance.Skip:
			fmt.Fprintf(out, "%s %6.1f s  %s\n", r.Outcome, r.Took.Seconds(), r.Test)
		}
		results = append(results, r)
	}
	if err := scanner.Err(); err != nil {
		return nil, false, fmt.Errorf("read the output of the suite: %w", err)
	}
	return results, complete, nil
}
