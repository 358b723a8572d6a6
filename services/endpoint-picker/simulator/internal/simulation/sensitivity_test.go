package simulation

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// figures are what one run measures, in seconds. Whole is the mean time of whole answers.
type figures struct {
	Scenario         string
	Seed             uint64
	Replicas         int
	Mean, P99, Whole float64
}

// variantLine is the start of the line with the figures of a program.
const variantLine = "figures of the variant: "

// sensitive are the scenarios: two with the picker's own model, two with the realistic law, of which one has a slow server, and two in
// which servers keep less than their pages say. With a recording, also its excerpts on two profiles.
func sensitive(b *testing.B) []Scenario {
	b.Helper()
	standard := map[string]Scenario{}
	for _, s := range StandardScenarios() {
		standard[s.Name] = s
	}
	var scenarios []Scenario
	for _, s := range []Scenario{standard["zipf"], standard["multiturn"], standard["mixed"].Realistic(), standard["slow"].Realistic()} {
		scenarios = append(scenarios, s.shorter(500))
	}
	for _, s := range []struct {
		name   string
		change func(e *Engine)
	}{
		{"hybrid", hybrid},
		{"no-cache", func(e *Engine) { e.Cache.Off, e.Reports = true, Reports{Usage: true} }},
	} {
		lossy := keeping(fewPrefixes.Workload(20), s.change)
		lossy.Name, lossy.Warm, lossy.Measured, lossy.Workload.bytes = s.name, 5*time.Second, 20*time.Second, []float64{6}
		scenarios = append(scenarios, lossy)
	}
	if *recordingFile == "" {
		return scenarios
	}
	r, err := loadRecording(open(b, *recordingFile))
	require.NoError(b, err)
	for _, name := range []string{"8b-h100", "7b-code-a100"} {
		const requests = 200
		p, err := ReadProfile(open(b, filepath.Join("servers", name+".json")))
		require.NoError(b, err)
		s := r.excerpt(0, requests).Scenario("recording-"+name, recordedRates[name], p.Engines(usualServers))
		s.Workload.bytes = p.BytesPerToken
		scenarios = append(scenarios, s)
	}
	return scenarios
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
				all = append(all, figures{s.Name, seed, n, r.FirstTokenTimes().Mean.Seconds(), r.FirstTokenTimes().P99.Seconds(),
					r.AnswerTimes().Mean.Seconds()})
			}
		}
	}
	return all
}

// BenchmarkVariant is what BenchmarkSensitivity runs in a program with changed constants.
func BenchmarkVariant(b *testing.B) {
	skipUnlessSelected(b, "it is a part of BenchmarkSensitivity")
	for b.Loop() {
		text, err := json.Marshal(measure(b, func(n int) Policy { return IndependentPickers(n, InTurn) }, 1, 2))
		require.NoError(b, err)
		fmt.Fprintln(os.Stdout, "\n"+variantLine+string(text))
	}
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
