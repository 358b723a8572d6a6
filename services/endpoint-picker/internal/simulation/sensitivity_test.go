package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
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

// figures are what one run measures, in seconds. Whole is the mean time of whole answers.
type figures struct {
	Scenario         string
	Seed             uint64
	Replicas         int
	Mean, P99, Whole float64
}

// variantLine is the start of the line with the figures of a program.
const variantLine = "figures of the variant: "

// sensitive are the scenarios: two with the picker's own model, two with the realistic law, of which one has a slow server, and two in which
// servers keep less than their pages say. With a recording, also its excerpts on two profiles.
func sensitive(b *testing.B) []Scenario {
	b.Helper()
	standard := map[string]Scenario{}
	for _, s := range Standard() {
		standard[s.Name] = s
	}
	var made []Scenario
	for _, s := range []Scenario{standard["zipf"], standard["multiturn"], standard["mixed"].Realistic(), standard["slow"].Realistic()} {
		made = append(made, s.shorter(500))
	}
	few := Prefixes{Count: 48, Skew: 0.6, Tokens: 1200, Own: 150, Answer: 60}
	for _, s := range []struct {
		name   string
		change func(e *Engine)
	}{
		{"hybrid", func(e *Engine) { e.BlockTokens, e.Blocks, e.Cache = 128, 64, CacheKind{Part: 10, Alignment: 5} }},
		{"no-cache", func(e *Engine) { e.Cache.Off, e.Reports = true, Reports{Usage: true} }},
	} {
		lossy := keeping(few.Workload(20), s.change)
		lossy.Name, lossy.Warm, lossy.Measured, lossy.Workload.bytes = s.name, 5*time.Second, 20*time.Second, []float64{6}
		made = append(made, lossy)
	}
	if *recordingFile == "" {
		return made
	}
	r, err := ReadRecording(open(b, *recordingFile))
	require.NoError(b, err)
	for _, name := range []string{"8b-h100", "7b-code-a100"} {
		const requests = 200
		p, err := ReadProfile(open(b, filepath.Join("servers", name+".json")))
		require.NoError(b, err)
		s := r.excerpt(0, requests).Scenario("recording-"+name, recordedRates[name], p.Engines(usualServers))
		s.Workload.bytes = p.BytesPerToken
		made = append(made, s)
	}
	return made
}

// measure runs the picker in all scenarios.
func measure(b *testing.B, policy func(replicas int) Policy, replicas ...int) []figures {
	b.Helper()
	var all []figures
	for _, s := range sensitive(b) {
		for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
			trace := s.Trace(seed)
			for _, n := range replicas {
				r := trace.Run(policy(n))
				all = append(all, figures{s.Name, seed, n, r.TTFT().Mean.Seconds(), r.TTFT().P99.Seconds(), r.Total().Mean.Seconds()})
			}
		}
	}
	return all
}

// BenchmarkVariant is what BenchmarkSensitivity runs in a program with changed constants.
func BenchmarkVariant(b *testing.B) {
	skipUnlessSelected(b, "it is a part of BenchmarkSensitivity")
	for b.Loop() {
		text, err := json.Marshal(measure(b, func(n int) Policy { return Picker(n, InTurn) }, 1, 2))
		require.NoError(b, err)
		fmt.Fprintln(os.Stdout, "\n"+variantLine+string(text))
	}
}

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

// changes are percentages.
type changes struct{ mean, error, p99, whole float64 }

// changeOf compares the runs with a number of replicas.
func changeOf(before, after []figures, replicas int) changes {
	var means, p99s, wholes []float64
	usual := map[string]figures{}
	key := func(f figures) string { return fmt.Sprint(f.Scenario, f.Seed, f.Replicas) }
	for _, f := range before {
		usual[key(f)] = f
	}
	for _, f := range after {
		if f.Replicas != replicas {
			continue
		}
		was := usual[key(f)]
		means, p99s, wholes = append(means, f.Mean/was.Mean), append(p99s, f.P99/was.P99), append(wholes, f.Whole/was.Whole)
	}
	percent := func(ratio float64) float64 { return 100 * (ratio - 1) }
	mean, deviation := geometric(means)
	p99, _ := geometric(p99s)
	whole, _ := geometric(wholes)
	return changes{percent(mean), 100 * deviation, percent(p99), percent(whole)}
}

func TestChangesArePercentages(t *testing.T) {
	t.Parallel()
	before := []figures{{"a", 1, 1, 1, 2, 3}, {"b", 1, 1, 10, 20, 30}, {"a", 1, 2, 1, 1, 1}}
	after := []figures{{"b", 1, 1, 11, 20, 15}, {"a", 1, 1, 1.1, 2, 6}, {"a", 1, 2, 3, 1, 1}}
	got := changeOf(before, after, 1)
	require.InDelta(t, 10, got.mean, 1e-9)
	require.InDelta(t, 0, got.error, 1e-9)
	require.InDelta(t, 0, got.p99, 1e-9)
	require.InDelta(t, 0, got.whole, 1e-9)
	require.InDelta(t, 200, changeOf(before, after, 2).mean, 1e-9)
	mean, deviation := geometric([]float64{1, 4})
	require.InDelta(t, 2, mean, 1e-9)
	require.InDelta(t, 2*math.Log(2), deviation, 1e-9)
}
