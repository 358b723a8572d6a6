package simulation

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	firstSeed     = flag.Uint64("seed", 1, "the first seed of the benchmark")
	recordingFile = flag.String("recording", os.Getenv("FAIRLEAD_RECORDING"), "a file in Mooncake's format, .jsonl or .jsonl.gz; default $FAIRLEAD_RECORDING")
	profile       = flag.String("profile", "", "a file with a profile of servers")
	servers       = flag.Int("servers", 8, "of the profile")
	load          = flag.Float64("load", 0.7, "part of the rate that the greedy policy sustains")
	compared      = flag.String("policies", ".", "regular expression: policies to compare with the greedy one")
	seeds         = flag.Int("seeds", 3, "of the benchmark, an odd number: it prints medians over them")
)

// policies are those of the table. The first is what the others are compared with.
func policies() []Policy {
	const delay = time.Millisecond
	return []Policy{
		Greedy(), LMetric(), AffinityTokenLoad(), IndependentPickers(1, InTurn), IndependentPickers(2, InTurn), IndependentPickers(2,
			AtRandom), IndependentPickers(4, InTurn),
		ConnectedPickers(2, InTurn, delay), ConnectedPickers(2, AtRandom, delay), ConnectedPickers(4, InTurn, delay), LeastLoad(), Random(),
		PinToGroup(),
	}
}

// BenchmarkPolicies prints how all policies fare in all scenarios: the time to the first token to that of the greedy policy,
// then times in milliseconds.
func BenchmarkPolicies(b *testing.B) {
	scenarios := StandardScenarios()
	for _, s := range StandardScenarios() {
		scenarios = append(scenarios, s.Realistic(), s.Overlapping())
	}
	for _, s := range append(scenarios, OtherScenarios()...) {
		b.Run(s.Name, func(b *testing.B) {
			for b.Loop() {
				printTable(os.Stdout, s)
			}
		})
	}
}

// BenchmarkRecording prints the same table for the requests of a recording, or for the standard workloads, on the servers of a profile.
func BenchmarkRecording(b *testing.B) {
	if *recordingFile == "" && *profile == "" {
		b.Skip("give -recording=FILE, -profile=FILE or both, as arguments of the test")
	}
	p := &Profile{}
	var err error
	engines := slices.Repeat([]Engine{UsualEngine()}, *servers)
	if *profile != "" {
		p, err = ReadProfile(open(b, *profile))
		require.NoError(b, err)
		engines = p.Engines(*servers)
	}
	at := map[string]func(float64) Scenario{}
	if *recordingFile != "" {
		r, err := loadRecording(open(b, *recordingFile))
		require.NoError(b, err)
		at["recording"] = func(perSecond float64) Scenario {
			s := r.Scenario("recording", perSecond, engines)
			s.Workload.bytes = p.BytesPerToken
			return s
		}
	} else {
		for _, standard := range StandardScenarios() {
			at[standard.Name] = func(perSecond float64) Scenario {
				s := standard
				if *servers != usualServers {
					s = s.withServers(*servers)
				}
				if *profile != "" {
					s = s.WithProfile(p)
				}
				s.Workload.rate = perSecond
				return s
			}
		}
	}
	for name, scenario := range at {
		b.Run(name, func(b *testing.B) {
			s, err := AtLoad(b.Context(), *load, *firstSeed, scenario)
			require.NoError(b, err)
			s.Name = fmt.Sprintf("%s %.3g/s", name, s.Workload.rate)
			for b.Loop() {
				printTable(os.Stdout, s)
			}
		})
	}
}

// skipUnlessSelected skips a benchmark that nobody wants among all others: -bench must name it.
func skipUnlessSelected(b *testing.B, why string) {
	b.Helper()
	name := strings.TrimPrefix(b.Name(), "Benchmark")
	if !strings.Contains(flag.Lookup("test.bench").Value.String(), name) {
		b.Skipf("%s: select it with -bench %s", why, name)
	}
}

func open(b *testing.B, name string) io.Reader {
	b.Helper()
	file, err := os.Open(name)
	require.NoError(b, err)
	b.Cleanup(func() { file.Close() })
	return file
}

// column is one figure of a result.
type column struct {
	name, format string
	of           func(r, best Result) float64
}

var columns = []column{
	{"mean÷", "%.2f", func(r, best Result) float64 { return ratio(r.FirstTokenTimes().Mean, best.FirstTokenTimes().Mean) }},
	{"p99÷", "%.2f", func(r, best Result) float64 { return ratio(r.FirstTokenTimes().P99, best.FirstTokenTimes().P99) }},
	{"ttft", "%.1f", func(r, _ Result) float64 { return milliseconds(r.FirstTokenTimes().Mean) }},
	{"p50", "%.1f", func(r, _ Result) float64 { return milliseconds(r.FirstTokenTimes().P50) }},
	{"p90", "%.1f", func(r, _ Result) float64 { return milliseconds(r.FirstTokenTimes().P90) }},
	{"p99", "%.1f", func(r, _ Result) float64 { return milliseconds(r.FirstTokenTimes().P99) }},
	{"e2e", "%.0f", func(r, _ Result) float64 { return milliseconds(r.AnswerTimes().Mean) }},
	{"p99", "%.0f", func(r, _ Result) float64 { return milliseconds(r.AnswerTimes().P99) }},
	{"good", "%.3f", func(r, _ Result) float64 { return r.Goodput() }},
	{"hit", "%.3f", func(r, _ Result) float64 { return r.HitRate() }},
	{"n", "%.0f", func(r, _ Result) float64 { return float64(r.Requests()) }},
	{"rejected", "%.0f", func(r, _ Result) float64 { return float64(r.Rejected) }},
	{"lost", "%.0f", func(r, _ Result) float64 { return float64(r.Lost) }},
	{"failed", "%.0f", func(r, _ Result) float64 { return float64(r.Failed) }},
}

// printTable runs a scenario under all policies, with as many seeds as are asked for.
func printTable(to io.Writer, s Scenario) {
	wanted := regexp.MustCompile(*compared)
	policies := slices.DeleteFunc(policies(), func(p Policy) bool { return p.Name != Greedy().Name && !wanted.MatchString(p.Name) })
	figures := make([][][]float64, len(policies)) // by policy and column, of all seeds
	for i := range figures {
		figures[i] = make([][]float64, len(columns))
	}
	for seed := range *seeds {
		trace := s.Trace(*firstSeed + uint64(seed))
		best := trace.Run(policies[0])
		for i, p := range policies {
			r := best
			if i > 0 {
				r = trace.Run(p)
			}
			for k, c := range columns {
				figures[i][k] = append(figures[i][k], c.of(r, best))
			}
		}
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\t", s.Name)
	for _, c := range columns {
		fmt.Fprint(w, c.name, "\t")
	}
	for i, p := range policies {
		fmt.Fprintf(w, "\n%s\t", p.Name)
		for k, c := range columns {
			fmt.Fprintf(w, c.format+"\t", median(figures[i][k]))
		}
	}
	fmt.Fprint(w, "\n\n")
	_ = w.Flush()
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median is the middle of an odd number of values.
func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
