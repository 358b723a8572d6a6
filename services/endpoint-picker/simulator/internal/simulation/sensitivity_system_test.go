//go:build system

package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var constantNames = flag.String("constants", ".", "a regular expression: the constants of BenchmarkSensitivity")

// BenchmarkSensitivity halves and doubles each constant of package estimate, one at a time, and prints by how many percent that changes the
// times of the picker: the mean TTFT of one replica, with its standard error over scenarios and seeds, and of two that hear nothing of each
// other, the 99th percentile of one, and the mean time of its whole answers. The greedy policy has no constants, so these are also the
// changes of the ratios to it. The first line has these ratios, and the last one the median of all changes: all are relative to one set of
// runs, whose own chance is in each of them.
func BenchmarkSensitivity(b *testing.B) {
	skipUnlessSelected(b, "it takes a quarter of an hour")
	names, err := regexp.Compile(*constantNames)
	require.NoError(b, err)
	c, err := readConstants()
	require.NoError(b, err)
	for b.Loop() {
		program := buildVariants(b, c)
		usual, err := runVariant(b, program, "")
		require.NoError(b, err)
		// Variables round otherwise than constants, which is enough for other choices. So a program with constants is compared with one.
		usualConstants := sync.OnceValues(func() ([]figures, error) {
			return runVariant(b, buildVariants(b, &constants{}), "")
		})
		var alone []figures
		for _, f := range usual {
			if f.Replicas == 1 {
				alone = append(alone, f)
			}
		}
		to := changeOf(measure(b, func(int) Policy { return Greedy() }, 1), alone, 1)
		fmt.Fprintf(os.Stdout, "\nmean TTFT of one replica to greedy %.3f, 99th percentile %.3f, whole answers %.3f, over %d runs\n\n", 1+to.mean/100, 1+to.p99/100, 1+to.whole/100, len(alone))
		var all [2][]float64
		fmt.Fprintf(os.Stdout, "%-32s %10s  %6s %6s %6s %6s %6s\n", "constant", "value", "mean", "±", "two", "p99", "whole")
		for _, one := range c.all {
			if !names.MatchString(one.name) {
				continue
			}
			fmt.Fprintf(os.Stdout, "%-32s %10.4g\n", one.name, one.value)
			for _, change := range []struct {
				name string
				to   func() (float64, bool)
			}{{"½", one.half}, {"×2", one.double}} {
				value, ok := change.to()
				if !ok {
					fmt.Fprintf(os.Stdout, "%32s %10s\n", change.name, "-")
					continue
				}
				before := usual
				if c.declared[one.name].path != "" {
					before, err = usualConstants()
					require.NoError(b, err)
				}
				changed, err := c.run(b, program, one.name, value)
				if err != nil {
					b.Errorf("%s = %v: %v", one.name, value, err)
					continue
				}
				one, two := changeOf(before, changed, 1), changeOf(before, changed, 2)
				all[0], all[1] = append(all[0], one.mean), append(all[1], two.mean)
				fmt.Fprintf(os.Stdout, "%32s %10.4g  %+6.1f %6.1f %+6.1f %+6.1f %+6.1f\n", change.name, value, one.mean, one.error, two.mean, one.p99, one.whole)
			}
		}
		if len(all[0]) > 0 {
			fmt.Fprintf(os.Stdout, "\nmedian of all: one replica %+.1f, two %+.1f\n", median(all[0]), median(all[1]))
		}
	}
}

// buildVariants builds this test with variables in the place of constants, and returns the program.
func buildVariants(b *testing.B, c *constants) string {
	b.Helper()
	folder := b.TempDir()
	overlay, err := c.write(folder)
	require.NoError(b, err)
	program := filepath.Join(folder, "variants.test")
	out, err := exec.CommandContext(b.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(b, err, string(out))
	return program
}

// run runs the program with another value of a constant, or builds one if it has to.
func (c *constants) run(b *testing.B, program, name string, value float64) ([]figures, error) {
	b.Helper()
	if c.declared[name].path == "" {
		return runVariant(b, program, fmt.Sprintf("%s=%v", name, value))
	}
	changed, err := c.with(name, value)
	require.NoError(b, err)
	return runVariant(b, buildVariants(b, changed), "")
}

// runVariant runs the program with a changed constant, as name=value.
func runVariant(b *testing.B, program, changed string) ([]figures, error) {
	b.Helper()
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	run := exec.CommandContext(ctx, program, "-test.run=^$", "-test.bench=^BenchmarkVariant$", "-test.benchtime=1x",
		fmt.Sprintf("-seed=%d", *firstSeed), fmt.Sprintf("-seeds=%d", *seeds), "-recording="+*recordingFile)
	run.Env = append(os.Environ(), variable+"="+changed)
	out, err := run.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run the program with changed constants: %w: %s", err, out)
	}
	_, text, found := bytes.Cut(out, []byte(variantLine))
	require.True(b, found, "%s: %s", changed, out)
	var all []figures
	return all, json.NewDecoder(bytes.NewReader(text)).Decode(&all)
}
