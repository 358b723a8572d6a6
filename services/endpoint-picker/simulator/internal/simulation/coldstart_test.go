package simulation

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/endpoint-picker/internal/estimate"
	"fairlead.dev/services/endpoint-picker/internal/prefixindex"
)

// A start is what begins anew at the end of the warm-up.
type start uint8

const (
	startPicker  start = 1 << iota // it has learned nothing
	startIndex                     // the picker sees all servers as new ones, and keeps what it knows of the pool
	startServers                   // their caches are empty
)

// starting returns the policy with a start at a time. Requests that are under way continue, and the new picker sees them on pages only.
func (p Policy) starting(what start, at time.Duration) Policy {
	if what == 0 {
		return p
	}
	return Policy{Name: p.Name, start: func(f *fleet) chooser {
		s := &successor{chooser: p.start(f)}
		f.timeline.scheduleAt(at, func() {
			before := f.servers
			for _, old := range before {
				s.removeServer(old)
			}
			if what&startPicker > 0 {
				s.chooser = p.start(f)
			}
			if what&startServers > 0 {
				f.servers = nil
			}
			for _, old := range before {
				if what&startServers > 0 {
					f.addEngine(old.Engine)
				} else {
					s.addServer(old)
				}
			}
		})
		return s
	}}
}

// successor is a policy that another one may succeed.
type successor struct{ chooser }

// starts are the rows of the table of a workload.
var starts = []struct {
	name       string
	cold, warm start
}{
	{"new fleet", startPicker | startServers, startServers},
	{"new picker", startPicker, 0},
	{"new index", startIndex, 0},
}

// The times since the start that end the columns.
var coldWindows = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, 60 * time.Second, 120 * time.Second}

// coldWarm is the time in which the warm picker learns.
const coldWarm = 60 * time.Second

// windowMeans returns the mean times to the first token in each window.
func windowMeans(r Result, from time.Duration) []float64 {
	sums, counts := make([]float64, len(coldWindows)), make([]float64, len(coldWindows))
	for i, ttft := range r.ttft {
		for k, end := range coldWindows {
			if r.arrived[i]-from < end {
				sums[k] += ttft.Seconds()
				counts[k]++
				break
			}
		}
	}
	for k := range sums {
		sums[k] /= counts[k]
	}
	return sums
}

// BenchmarkColdStart prints how long a new picker needs to be as good as a warm one on the same traffic: in windows of time since the
// start, its mean time to the first token to that of the warm one, with the standard error over the seeds, and to the greedy policy.
func BenchmarkColdStart(b *testing.B) {
	skipUnlessSelected(b, "it takes some minutes")
	scenarios := map[string]func(seed uint64) Scenario{}
	for _, s := range StandardScenarios() {
		for _, s := range []Scenario{s, s.Realistic()} {
			s.Churn, s.Warm, s.Measured = false, coldWarm/2, coldWindows[len(coldWindows)-1] // they have many requests
			scenarios[s.Name] = func(uint64) Scenario { return s }
		}
	}
	delete(scenarios, "churn") // without its events it is zipf
	delete(scenarios, "churn-realistic")
	if *recordingFile != "" {
		r, err := loadRecording(open(b, *recordingFile))
		require.NoError(b, err)
		for name, rate := range recordedRates {
			p, err := ReadProfile(open(b, "servers/"+name+".json"))
			require.NoError(b, err)
			scenarios["recording-"+name] = func(seed uint64) Scenario {
				n := int(rate * (coldWarm + coldWindows[len(coldWindows)-1]).Seconds())
				s := r.excerpt(int(seed-*firstSeed)*(len(r.requests)-n) / *seeds, n).Scenario(name, rate, p.Engines(usualServers))
				s.Workload.bytes = p.BytesPerToken
				s.Warm, s.Measured = coldWarm, s.Warm+s.Measured-coldWarm
				return s
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(scenarios)) {
		scenario := scenarios[name]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				printColdStart(os.Stdout, name, scenario)
			}
		})
	}
}

// recordedRates are 0.7 of the rates that the greedy policy sustains on eight servers of a profile with Mooncake's synthetic trace
// (BenchmarkRecording finds them, in a minute each).
var recordedRates = map[string]float64{"8b-h100": 6.8, "32b-2xh100": 3.6, "7b-code-a100": 2.3}

// excerpt returns some requests of a recording.
func (r *Recording) excerpt(from, n int) *Recording {
	return &Recording{requests: r.requests[from : from+n], system: r.system, tokens: r.tokens}
}

func printColdStart(to io.Writer, name string, scenario func(seed uint64) Scenario) {
	toWarm, toGreedy := make([][][]float64, len(starts)), make([][][]float64, len(starts)) // by row, window and seed
	for i := range starts {
		toWarm[i], toGreedy[i] = make([][]float64, len(coldWindows)), make([][]float64, len(coldWindows))
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		s := scenario(seed)
		trace, measured := s.Trace(seed), map[string][]float64{}
		run := func(p Policy, what start) []float64 { // each only once
			key := fmt.Sprint(p.Name, what)
			if measured[key] == nil {
				measured[key] = windowMeans(trace.Run(p.starting(what, s.Warm)), s.Warm)
			}
			return measured[key]
		}
		for i, row := range starts {
			cold, warm, greedy := run(IndependentPickers(1, InTurn), row.cold), run(IndependentPickers(1, InTurn), row.warm), run(Greedy(), row.warm)
			for k := range coldWindows {
				toWarm[i][k], toGreedy[i][k] = append(toWarm[i][k], cold[k]/warm[k]), append(toGreedy[i][k], cold[k]/greedy[k])
			}
		}
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\tto\t", name)
	for _, end := range coldWindows {
		fmt.Fprintf(w, "%.0f s\t", end.Seconds())
	}
	for i, row := range starts {
		fmt.Fprintf(w, "\n%s\twarm\t", row.name)
		for _, ratios := range toWarm[i] {
			mean, deviation := geometric(ratios)
			fmt.Fprintf(w, "%.2f ±%.2f\t", mean, deviation)
		}
		fmt.Fprint(w, "\n\tgreedy\t")
		for _, ratios := range toGreedy[i] {
			mean, _ := geometric(ratios)
			fmt.Fprintf(w, "%.2f\t", mean)
		}
	}
	fmt.Fprint(w, "\n\n")
	_ = w.Flush()
}

// geometric returns the geometric mean of ratios, and its standard error.
func geometric(ratios []float64) (mean, deviation float64) {
	n, sum, squares := float64(len(ratios)), 0.0, 0.0
	for _, r := range ratios {
		sum += math.Log(r)
	}
	for _, r := range ratios {
		squares += math.Pow(math.Log(r)-sum/n, 2)
	}
	return math.Exp(sum / n), math.Exp(sum/n) * math.Sqrt(squares/max(n-1, 1)/n)
}

// What begins anew knows nothing of before, and the rest does.
func TestStartsForget(t *testing.T) {
	t.Parallel()
	s := find(t, StandardScenarios(), "zipf").withServers(2)
	s.Warm, s.Measured = 5*time.Second, time.Second
	for name, tt := range map[string]struct {
		start                 start
		costs, index, servers bool // are kept
	}{
		"nothing":    {0, true, true, true},
		"new picker": {startPicker, false, false, true},
		"new index":  {startIndex, true, false, true},
		"new fleet":  {startPicker | startServers, false, false, false},
		"roll-out":   {startServers, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f *fleet
			var r *replica // the newest
			var perToken float64
			blocks, hits := 0, 0
			p := IndependentPickers(1, InTurn)
			inner := p.start
			p.start = func(of *fleet) chooser {
				started := inner(of)
				f, r = of, started.(*picker).replicas[0]
				return started
			}
			look := func() {
				perToken, hits = r.factory.Costs().PerToken, f.servers[0].hits
				for _, m := range r.members {
					held, _ := r.factory.CacheSize(m.endpoint)
					blocks += held
				}
			}
			looking := Policy{start: func(of *fleet) chooser {
				c := p.starting(tt.start, s.Warm).start(of)
				of.timeline.scheduleAt(s.Warm, look)
				return c
			}}
			assert.Zero(t, s.Trace(1).Run(looking).Failed)
			assert.Equal(t, tt.costs, perToken != estimate.New(prefixindex.NewMemoryBudget(0)).Costs().PerToken)
			assert.Equal(t, tt.index, blocks > 0)
			assert.Equal(t, tt.servers, hits > 0)
			require.Len(t, f.servers, 2)
			for _, m := range r.members {
				assert.Contains(t, f.servers, m.server)
			}
		})
	}
}
