package steptime

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Table is a law by measurement: a step takes the sum of its parts.
type Table []Part

// A Part is the measured time of one part of a step, over some properties of the step.
type Part struct {
	Axes []Axis    `json:"axes"`
	MS   []float64 `json:"ms"` // milliseconds for each point; that of the last axis changes fastest
}

// An Axis is a property of a step with ascending points, from 0.
type Axis struct {
	Of string    `json:"of"`
	At []float64 `json:"at"`
}

// tableAxes are the properties of steps, by the names of axes.
var tableAxes = map[string]func(*Step) float64{
	"prompt":   func(s *Step) float64 { return float64(s.Prompt) },
	"decoding": func(s *Step) float64 { return float64(s.Sequences) },
	"before": func(s *Step) float64 { // tokens before each prompt token, in the mean
		return float64(s.Pairs-s.Prompt) / float64(max(s.Prompt, 1))
	},
	"context": func(s *Step) float64 { // tokens in the KV cache of each decoding sequence, in the mean
		return float64(s.Context) / float64(max(s.Sequences, 1))
	},
}

// Validate returns an error for an impossible table.
func (t Table) Validate() error {
	for i := range t {
		if err := t[i].validatePart(); err != nil {
			return fmt.Errorf("table %d: %w", i, err)
		}
	}
	if one := (&Step{Sequences: 1, Context: 1}); len(t) > 0 && t.stepTime(one) <= 0 {
		return errors.New("table: a step must take time")
	}
	return nil
}

func (p *Part) validatePart() error {
	points := 1
	for _, a := range p.Axes {
		points *= len(a.At)
		if tableAxes[a.Of] == nil {
			return fmt.Errorf("axis %q is none of prompt, before, decoding, context", a.Of)
		}
		if len(a.At) == 0 || a.At[0] != 0 || !slices.IsSorted(a.At) || len(slices.Compact(slices.Clone(a.At))) != len(a.At) {
			return fmt.Errorf("the points of axis %s must ascend from 0", a.Of)
		}
	}
	if len(p.MS) != points || slices.Min(p.MS) < 0 {
		return fmt.Errorf("it has %d times, which must not be negative, for %d points", len(p.MS), points)
	}
	return nil
}

// stepTime returns the time of a step.
func (t Table) stepTime(s *Step) time.Duration {
	sum := 0.0
	for i := range t {
		sum += t[i].interpolateTime(s, 0, 0)
	}
	return time.Duration(sum * float64(time.Millisecond))
}

// interpolateTime returns the milliseconds of a part, linear along each axis from the given one on, and constant beyond its ends. row is
// the place of the point in the axes before.
func (p *Part) interpolateTime(s *Step, axis, row int) float64 {
	if axis == len(p.Axes) {
		return p.MS[row]
	}
	at, value := p.Axes[axis].At, tableAxes[p.Axes[axis].Of](s)
	row *= len(at)
	next, _ := slices.BinarySearch(at, value)
	switch next {
	case 0:
		return p.interpolateTime(s, axis+1, row)
	case len(at):
		return p.interpolateTime(s, axis+1, row+next-1)
	}
	low, high := p.interpolateTime(s, axis+1, row+next-1), p.interpolateTime(s, axis+1, row+next)
	return low + (high-low)*(value-at[next-1])/(at[next]-at[next-1])
}
