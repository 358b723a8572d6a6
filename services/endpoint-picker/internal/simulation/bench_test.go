package simulation

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

const seeds = 3

// policies are those of the table, what the others are compared with first.
func policies() []Policy {
	return []Policy{Greedy(), Picker(1, InTurn), Picker(2, InTurn), Picker(2, AtRandom), LeastLoad(), Random(), Pin()}
}

// BenchmarkPolicies prints how all policies fare in all scenarios: medians over the seeds, times in milliseconds.
func BenchmarkPolicies(b *testing.B) {
	for _, s := range append(Standard(), Others()...) {
		b.Run(s.Name, func(b *testing.B) {
			for b.Loop() {
				fmt.Println("\n" + table(s, policies()))
			}
		})
	}
}

func table(s Scenario, policies []Policy) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\tmean÷\tp99÷\tttft\tp50\tp90\tp99\te2e\tp99\thit\tn\trejected\tlost\tfailed\t\n", s.Name)
	rows := map[string][][]float64{}
	for seed := uint64(1); seed <= seeds; seed++ {
		t := s.Trace(seed)
		var best Times
		for i, p := range policies {
			r := t.Run(p)
			first, total := r.TTFT(), r.Total()
			if i == 0 {
				best = first
			}
			rows[p.Name] = append(rows[p.Name], []float64{
				ratio(first.Mean, best.Mean), ratio(first.P99, best.P99),
				ms(first.Mean), ms(first.P50), ms(first.P90), ms(first.P99), ms(total.Mean), ms(total.P99),
				r.HitRate(), float64(r.Requests()), float64(r.Rejected), float64(r.Lost), float64(r.Failed),
			})
		}
	}
	for _, p := range policies {
		fmt.Fprintf(w, "%s\t", p.Name)
		for i, format := range []string{"%.2f", "%.2f", "%.1f", "%.1f", "%.1f", "%.1f", "%.0f", "%.0f", "%.3f", "%.0f", "%.0f", "%.0f", "%.0f"} {
			var column []float64
			for _, row := range rows[p.Name] {
				column = append(column, row[i])
			}
			fmt.Fprintf(w, format+"\t", median(column))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return text.String()
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// median is the middle of an odd number of values.
func median(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}
