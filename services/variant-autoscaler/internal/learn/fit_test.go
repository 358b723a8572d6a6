package learn

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFit(t *testing.T) {
	t.Parallel()
	line := func() []row {
		var rows []row
		for n := 1.0; n <= 10; n++ {
			rows = append(rows, row{x: [terms]float64{1, n}, y: 2 + 0.5*n, w: 1})
		}
		return rows
	}
	c := fitCoefficients(line())
	assert.InDeltaSlice(t, []float64{2, 0.5, 0, 0}, c[:], 1e-9)

	rows := line()
	rows[9].y = 70 // ten times too much
	c = fitCoefficients(rows)
	assert.InDelta(t, 2, c[0], 0.3)
	assert.InDelta(t, 0.5, c[1], 0.1)

	rows = nil
	for n := 1.0; n <= 10; n++ {
		rows = append(rows, row{x: [terms]float64{1, n}, y: 10 - 0.5*n, w: 1})
	}
	c = fitCoefficients(rows)
	assert.InDelta(t, 7.25, c[0], 0.2, "the mean")
	assert.Zero(t, c[1], "not negative")

	prior := row{x: [terms]float64{0, 1, -1}, w: 1, prior: true}
	c = fitCoefficients(append([]row{{x: [terms]float64{0, 1, 1}, y: 4, w: 1}}, prior))
	assert.InDeltaSlice(t, []float64{0, 2, 2, 0}, c[:], 1e-9, "a prior divides what the data leave open")
	assert.Zero(t, fitCoefficients(nil))
}

// TestOneSampleMovesAPointLittle: a sample that is a thousand times too large moves a full point by 4 %.
func TestOneSampleMovesAPointLittle(t *testing.T) {
	t.Parallel()
	p, _ := newPoint(at(0, 10))
	for i := range 20 {
		o, _ := newPoint(at(1+i, 10))
		p.addSample(&o)
	}
	o, _ := newPoint(at(30, 10))
	o.ITL *= 1000
	p.addSample(&o)
	assert.InEpsilon(t, 10*1.04, p.ITL, 0.01)
	assert.InDelta(t, 10, p.Running, 0.01)
}
