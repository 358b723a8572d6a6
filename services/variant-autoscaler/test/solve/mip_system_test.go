//go:build system

package main

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// integerProgram is the cheapest plan that serves as much as another one, in the form of test/mip/mip.py.
type integerProgram struct {
	Costs []float64 `json:"costs"`
	Low   []int     `json:"low"`
	High  []int     `json:"high"`
	Rows  []mipRow  `json:"rows"`
	Nodes int       `json:"nodes"`
}

type mipRow struct {
	Index []int     `json:"index"`
	Value []float64 `json:"value"`
	Low   *float64  `json:"low,omitempty"`
	High  *float64  `json:"high,omitempty"`
}

func (r *mipRow) add(index int, value float64) {
	r.Index, r.Value = append(r.Index, index), append(r.Value, value)
}

const micro = 1e6

// programOf returns the program of a problem with the split by capacity, in which all variants have one: a group serves a load if the
// capacities of its replicas add up to it.
func programOf(p *optimizer.Problem, plan *optimizer.Plan) *integerProgram {
	program := &integerProgram{Nodes: 20}
	limits := make([]mipRow, len(p.Limits))
	for g := range p.Groups {
		group, demand := &p.Groups[g], (p.Groups[g].Rate*(100+p.HeadroomPercent)+99)/100
		served := (plan.Shares[g]*demand + optimizer.Million - 1) / optimizer.Million
		serves := mipRow{Low: pointer(float64(served) / micro)}
		for n := range group.Variants {
			v, at := &group.Variants[n], len(program.Costs)
			high := v.Max
			if high == 0 {
				high = max(v.Min, int(demand/v.Capacity)+1)
			}
			program.Costs, program.Low, program.High = append(program.Costs, float64(v.Cost)/micro), append(program.Low, v.Min),
				append(program.High, high)
			serves.add(at, float64(v.Capacity)/micro)
			for _, t := range v.Places {
				limits[t.Limit].add(at, float64(t.Amount))
			}
			for l := range p.Limits {
				if p.Limits[l].Unit == snapshot.Cards && p.Limits[l].Accelerator == v.Accelerator {
					limits[l].add(at, float64(v.Cards))
				}
			}
		}
		if demand == 0 && group.NeedsReplica && plan.Shares[g] > 0 {
			serves = mipRow{Index: serves.Index, Value: slices.Repeat([]float64{1}, len(serves.Index)), Low: pointer(1)}
		}
		program.Rows = append(program.Rows, serves)
	}
	for l := range limits {
		if len(limits[l].Index) > 0 {
			limits[l].High = pointer(float64(p.Limits[l].Amount))
			program.Rows = append(program.Rows, limits[l])
		}
	}
	return program
}

func pointer(x float64) *float64 { return &x }

// TestBoundsAgainstHiGHS: no plan that serves as much costs less than the bound, and the plan costs at most 0.1 % more than the cheapest
// one.
func TestBoundsAgainstHiGHS(t *testing.T) {
	t.Parallel()
	python, err := filepath.Glob("../../../../bin/cache/mip-*/bin/python")
	require.NoError(t, err)
	if len(python) == 0 {
		t.Skip("no bin/cache/mip-*: run make mip")
	}
	for _, family := range []string{"scarce-33", "scarce-333", "scarcer-333", "starved-12", "starved-33", "starved-333"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			in := instances(t, family)[0]
			cards := in.toProblem(in.allCapacities())
			cards.Split = optimizer.SplitCapacity
			for _, p := range []*optimizer.Problem{cards, packed(cards, scarcest), packed(cards, everything)} {
				plan := optimizer.Solve(p)
				best := solveProgram(t, python[0], programOf(p, plan))
				assert.LessOrEqual(t, float64(plan.Bound)/micro, best.Cost*(1+1e-6))
				assert.GreaterOrEqual(t, float64(plan.Cost)/micro, best.Bound*(1-1e-6), "HiGHS sees another problem")
				if plan.Bound > 0 { // the search was not cut short
					assert.LessOrEqual(t, float64(plan.Cost)/micro, best.Cost*1.001)
				}
			}
		})
	}
}

// mipResult is the cost of the best plan that HiGHS found, and what no plan undercuts.
type mipResult struct{ Cost, Bound float64 }

func solveProgram(t *testing.T, python string, p *integerProgram) mipResult {
	t.Helper()
	input, err := json.Marshal(p)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), python, "../../test/mip/mip.py")
	cmd.Stdin = bytes.NewReader(append(input, '\n'))
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, string(output))
	begin := bytes.IndexByte(output, '{') // after the banner
	require.GreaterOrEqual(t, begin, 0, string(output))
	var result mipResult
	require.NoError(t, json.Unmarshal(output[begin:], &result))
	return result
}
