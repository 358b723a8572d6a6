package main

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// families are instances of testdata, and the times in which their plans should be there, on two idle processors.
//
//	profiles-N    999 variants in 333 groups with N distinct profiles
//	fleet         10 000 variants
//	scarce-N      N groups; accelerators are short, in scarcer-N more so
//	starved-N     N groups; of the accelerators that they need, some are used up
var families = []struct {
	name  string
	limit time.Duration
}{
	{"profiles-256", 20 * time.Millisecond},
	{"profiles-64", 10 * time.Millisecond},
	{"profiles-8", 5 * time.Millisecond},
	{"fleet", 500 * time.Millisecond},
	{"scarce-33", 20 * time.Millisecond},
	{"scarce-333", 100 * time.Millisecond},
	{"scarcer-333", 100 * time.Millisecond},
	{"starved-12", 200 * time.Millisecond},
	{"starved-33", 200 * time.Millisecond},
	{"starved-333", 200 * time.Millisecond},
}

// instances reads the instances of a family.
func instances(tb testing.TB, family string) []*instance {
	tb.Helper()
	file, err := os.Open(filepath.Join("testdata", family+".jsonl.gz"))
	require.NoError(tb, err)
	defer file.Close()
	text, err := gzip.NewReader(file)
	require.NoError(tb, err)
	var all []*instance
	for decoder := json.NewDecoder(text); decoder.More(); {
		in := &instance{}
		require.NoError(tb, decoder.Decode(in))
		all = append(all, in)
	}
	return all
}

// TestFamilies: a plan of a family that the benchmark measures is proven to be the cheapest.
func TestFamilies(t *testing.T) {
	t.Parallel()
	for _, family := range families {
		if family.name == "fleet" {
			continue // takes long with the race detector
		}
		t.Run(family.name, func(t *testing.T) {
			t.Parallel()
			in := instances(t, family.name)[0]
			got, err := in.solvePlan()
			require.NoError(t, err)
			var cost int64
			at := 0
			for g := range in.Groups {
				for v := range in.Groups[g].Variants {
					cost += in.Groups[g].Variants[v].Cost * int64(got.Replicas[at])
					at++
				}
			}
			assert.Equal(t, cost, got.Bound)
		})
	}
}

// BenchmarkFamilies prints the median time from a problem to its plan, and the goal.
func BenchmarkFamilies(b *testing.B) {
	for _, family := range families {
		b.Run(family.name, func(b *testing.B) {
			all := instances(b, family.name)
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				_, err := all[i%len(all)].solvePlan()
				took = append(took, time.Since(began))
				require.NoError(b, err)
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1e3, "ms/median")
			b.ReportMetric(float64(family.limit.Milliseconds()), "ms/goal")
		})
	}
}
