package learn

import (
	"math"
	"math/bits"
)

const terms = 4 // of a law

// row is one equation Σ x·coefficient = y. Prior rows keep their weight; others lose it if they are far off.
type row struct {
	x     [terms]float64
	y     float64
	w     float64
	prior bool
}

// fitCoefficients returns the coefficients, none of them negative, with the least errors. Rows that are far off count little (Huber's
// weights).
func fitCoefficients(rows []row) [terms]float64 {
	scale := [terms]float64{}
	for _, r := range rows {
		for i, x := range r.x {
			scale[i] = max(scale[i], math.Abs(x))
		}
	}
	weights := make([]float64, len(rows))
	for i, r := range rows {
		weights[i] = r.w
	}
	var c [terms]float64
	for range rounds {
		c = leastSquares(rows, weights, scale)
		reweightRows(rows, weights, &c)
	}
	return c
}

// reweightRows sets the weights of rows by how far they are off, in standard deviations estimated by the median.
func reweightRows(rows []row, weights []float64, c *[terms]float64) {
	var residuals []weighted
	for i := range rows {
		if r := &rows[i]; !r.prior {
			residuals = append(residuals, weighted{math.Abs(r.residualOf(c)), r.w})
		}
	}
	const normal = 1.4826 // standard deviation of a normal distribution by the median of the absolute values
	bound := huber * max(normal*weightedQuantile(residuals, 0.5), minDeviation)
	for i := range rows {
		if r := &rows[i]; !r.prior {
			weights[i] = r.w * min(1, bound/max(math.Abs(r.residualOf(c)), bound))
		}
	}
}

func (r *row) residualOf(c *[terms]float64) float64 {
	v := -r.y
	for i, x := range r.x {
		v += x * c[i]
	}
	return v
}

// leastSquares returns the best coefficients that are not negative. It tries each subset of them: there are 16.
func leastSquares(rows []row, weights []float64, scale [terms]float64) [terms]float64 {
	var m [terms][terms + 1]float64
	for k := range rows {
		r := &rows[k]
		for i := range terms {
			if scale[i] == 0 {
				continue
			}
			xi := r.x[i] / scale[i] * weights[k]
			for j := range terms {
				if scale[j] > 0 {
					m[i][j] += xi * r.x[j] / scale[j]
				}
			}
			m[i][terms] += xi * r.y
		}
	}
	var best [terms]float64
	gain := 0.0 // what the coefficients explain of Σ w·y²
	for set := uint(1); set < 1<<terms; set++ {
		c, ok := solveSubset(&m, set)
		if !ok {
			continue
		}
		explained := 0.0
		for i := range terms {
			explained += c[i] * m[i][terms]
		}
		if explained > gain {
			gain, best = explained, c
		}
	}
	for i := range terms {
		if scale[i] > 0 {
			best[i] /= scale[i]
		}
	}
	return best
}

// solveSubset solves the equations for a subset of the coefficients; the others are 0. It returns false if one is negative or not defined.
func solveSubset(m *[terms][terms + 1]float64, set uint) (c [terms]float64, ok bool) {
	var index [terms]int
	n := 0
	for rest := set; rest != 0; rest &= rest - 1 {
		index[n] = bits.TrailingZeros(rest)
		n++
	}
	var a [terms][terms + 1]float64
	for i := range n {
		for j := range n {
			a[i][j] = m[index[i]][index[j]]
		}
		a[i][n] = m[index[i]][terms]
	}
	if !triangulate(&a, n) {
		return c, false
	}
	for i := n - 1; i >= 0; i-- {
		v := a[i][n]
		for j := i + 1; j < n; j++ {
			v -= a[i][j] * c[index[j]]
		}
		v /= a[i][i]
		if !(v >= 0) || math.IsInf(v, 0) {
			return [terms]float64{}, false
		}
		c[index[i]] = v
	}
	return c, true
}

// triangulate makes n equations triangular. It returns false if they do not define their unknowns.
func triangulate(a *[terms][terms + 1]float64, n int) bool {
	const tiny = 1e-12 // of the diagonal: what is left is a rounding error
	var diagonal [terms]float64
	for i := range n {
		diagonal[i] = a[i][i]
	}
	for i := range n {
		if a[i][i] <= tiny*diagonal[i] || !(a[i][i] > 0) {
			return false
		}
		for k := i + 1; k < n; k++ {
			q := a[k][i] / a[i][i]
			for j := i; j <= n; j++ {
				a[k][j] -= q * a[i][j]
			}
		}
	}
	return true
}
