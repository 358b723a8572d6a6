// Command solve answers optimization problems on standard input, for measurements: one process for many passes. For each pass, it reads the
// problem as a line of JSON and prints "ready", reads the line "solve" and prints the plan as a line of JSON. It ends with the input.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"fairlead.dev/services/variant-autoscaler/internal/optimizer"
	"fairlead.dev/services/variant-autoscaler/internal/queueing"
	"fairlead.dev/services/variant-autoscaler/internal/snapshot"
)

// instance is a problem whose capacities may follow from profiles.
type instance struct {
	ID         string  `json:"id"`
	Split      string  `json:"split"`
	Headroom   int64   `json:"headroomPercent"`
	Percentile float64 `json:"percentile"`
	Saving     int64   `json:"savingPercent"`
	Limits     []limit `json:"limits"`
	Groups     []group `json:"groups"`
}

type limit struct {
	Unit        string `json:"unit"` // empty: cards
	Accelerator string `json:"accelerator"`
	Namespace   string `json:"namespace"`
	Priority    int    `json:"priority"`
	Amount      int64  `json:"cards"` // of the unit
}

type group struct {
	Namespace    string    `json:"namespace"`
	Pool         string    `json:"pool"`
	Model        string    `json:"model"`
	Priority     int       `json:"priority"`
	Rate         int64     `json:"rate"`
	InputTokens  float64   `json:"inputTokens"`
	OutputTokens float64   `json:"outputTokens"`
	TTFT         float64   `json:"ttftMs"`
	ITL          float64   `json:"itlMs"`
	KeepOne      bool      `json:"keepOne"`
	Variants     []variant `json:"variants"`
}

type variant struct {
	Name        string            `json:"name"`
	Accelerator string            `json:"accelerator"`
	Cards       int64             `json:"cards"`
	Cost        int64             `json:"cost"`
	Min         int               `json:"min"`
	Max         int               `json:"max"`
	Now         int               `json:"now"`
	Held        int               `json:"held"`
	Weight      int64             `json:"weight"`
	Capacity    int64             `json:"capacity"`
	Profile     *queueing.Profile `json:"profile"`
}

// answer is a plan, in the order of the variants of the instance.
type answer struct {
	Replicas   []int   `json:"replicas"`
	Capacities []int64 `json:"capacities"`
	Acted      []int   `json:"acted"`
	Bound      int64   `json:"bound"`
}

var errNotSolve = errors.New(`the line after a problem must be "solve"`)

func main() {
	if err := answerProblems(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// answerProblems answers until the input ends.
func answerProblems(in io.Reader, out io.Writer) error {
	r := bufio.NewReaderSize(in, 1<<20)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read problem: %w", err)
		}
		var problem instance
		if err := json.Unmarshal(line, &problem); err != nil {
			return fmt.Errorf("parse problem: %w", err)
		}
		if _, err := fmt.Fprintln(out, "ready"); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if line, err = r.ReadBytes('\n'); err != nil || string(line) != "solve\n" {
			return errNotSolve
		}
		plan, err := problem.solvePlan()
		if err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(plan); err != nil {
			return fmt.Errorf("write plan: %w", err)
		}
	}
}

func (in *instance) solvePlan() (*answer, error) {
	capacities := in.allCapacities()
	p := in.toProblem(capacities)
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	plan := optimizer.Solve(p)
	_, acted := optimizer.Stabilize(p, plan)
	return &answer{Replicas: plan.Replicas, Capacities: capacities, Acted: acted, Bound: plan.Bound}, nil
}

// allCapacities returns the capacity of a replica of each variant.
func (in *instance) allCapacities() []int64 {
	var variants []*variant
	var groups []*group
	for i := range in.Groups {
		for n := range in.Groups[i].Variants {
			variants, groups = append(variants, &in.Groups[i].Variants[n]), append(groups, &in.Groups[i])
		}
	}
	all := make([]int64, len(variants))
	optimizer.ParallelFor(len(variants), func(i int) {
		all[i] = variants[i].replicaCapacity(groups[i], in.Percentile)
	})
	return all
}

func (v *variant) replicaCapacity(g *group, percentile float64) int64 {
	if v.Profile == nil {
		return v.Capacity
	}
	model, err := queueing.New(*v.Profile, queueing.Traffic{Input: g.InputTokens, Output: g.OutputTokens})
	if err != nil {
		return 0
	}
	return model.Capacity(queueing.Targets{TTFT: g.TTFT, ITL: g.ITL, Percentile: percentile})
}

func (in *instance) toProblem(capacities []int64) *optimizer.Problem {
	p := &optimizer.Problem{Split: optimizer.Split(in.Split), HeadroomPercent: in.Headroom, SavingPercent: in.Saving}
	for _, l := range in.Limits {
		p.Limits = append(p.Limits, snapshot.Limit{
			Unit: snapshot.Unit(cmp.Or(l.Unit, string(snapshot.Cards))), Accelerator: l.Accelerator, Namespace: l.Namespace,
			Priority: l.Priority, Amount: l.Amount,
		})
	}
	for i := range in.Groups {
		g := &in.Groups[i]
		group := optimizer.Group{Namespace: g.Namespace, Pool: g.Pool, Model: g.Model, Priority: g.Priority, Rate: g.Rate,
			NeedsReplica: g.KeepOne}
		for n := range g.Variants {
			v := &g.Variants[n]
			group.Variants = append(group.Variants, optimizer.Variant{
				Name: v.Name, Accelerator: v.Accelerator, Cards: v.Cards, Cost: v.Cost, Min: v.Min, Max: v.Max, Now: v.Now, Held: v.Held,
				Weight:   v.Weight,
				Capacity: capacities[0],
			})
			capacities = capacities[1:]
		}
		p.Groups = append(p.Groups, group)
	}
	return p
}
