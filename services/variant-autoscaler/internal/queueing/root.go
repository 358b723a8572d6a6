package queueing

import "math"

// findRoot returns the largest number known at which a function that grows is not positive: f(low) <= 0 and f(high) > 0. It is
// Chandrupatla's method, which interpolates by the inverse of a parabola where the function is smooth, and halves the interval
// elsewhere: the wait at a percentile has a kink.
func findRoot(f func(float64) float64, low, high float64) float64 {
	const (
		tolerance = 1e-12
		most      = 200 // halving alone needs 60
	)
	a, b := high, low
	fa, fb := f(a), f(b)
	var c, fc float64
	t := 0.5
	for range most {
		x := a + t*(b-a)
		fx := f(x)
		if (fx > 0) == (fa > 0) {
			c, fc = a, fa
		} else {
			c, b, fc, fb = b, a, fb, fa
		}
		a, fa = x, fx
		width := tolerance * math.Abs(a) / math.Abs(b-a)
		if width > 0.5 || fa == 0 {
			break
		}
		xi, phi := (a-b)/(c-b), (fa-fb)/(fc-fb)
		if phi*phi < xi && (1-phi)*(1-phi) < 1-xi {
			t = fa/(fb-fa)*fc/(fb-fc) + (c-a)/(b-a)*fa/(fc-fa)*fb/(fc-fb)
		} else {
			t = 0.5
		}
		t = min(max(t, width), 1-width)
	}
	if fa > 0 {
		return b
	}
	return a
}
