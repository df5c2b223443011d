package perflab

import (
	"fmt"
	"math"
)

// Fit is a power law y = factor * x^Exponent, a line in logarithms of both.
type Fit struct {
	Exponent, Factor float64
	// Residual is the root mean square of the differences of the logarithms: about the relative
	// difference of a point from the line.
	Residual float64
	Points   int // that were fitted
	// Last is the exponent between the last two points, where costs that do not grow matter least.
	Last float64
}

// minFitPoints is the least number of points whose residual says something.
const minFitPoints = 3

// FitPowerLaw fits a power law by least squares of the logarithms. Points with a value that is not
// positive are left out. The Fit has no exponent if fewer than two sizes are left.
func FitPowerLaw(xs, ys []float64) (f Fit) {
	var n, sx, sy, sxx, sxy float64
	for i := range xs {
		if xs[i] > 0 && ys[i] > 0 {
			x, y := math.Log(xs[i]), math.Log(ys[i])
			n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
		}
	}
	f.Points = int(n)
	if d := n*sxx - sx*sx; n >= 2 && d > 1e-9 {
		f.Exponent = (n*sxy - sx*sy) / d
		f.Factor = math.Exp((sy - f.Exponent*sx) / n)
	} else {
		return Fit{}
	}
	if k := len(xs) - 1; ys[k] > 0 && ys[k-1] > 0 && xs[k] > xs[k-1] {
		f.Last = math.Log(ys[k]/ys[k-1]) / math.Log(xs[k]/xs[k-1])
	}
	sum := 0.0
	for i := range xs {
		if xs[i] > 0 && ys[i] > 0 {
			d := math.Log(ys[i] / f.At(xs[i]))
			sum += d * d
		}
	}
	f.Residual = math.Sqrt(sum / n)
	return f
}

// At returns the value of the power law for a size.
func (f *Fit) At(x float64) float64 { return f.Factor * math.Pow(x, f.Exponent) }

// String returns the exponents and the residual: "n^1.06, residual 7 %, at the end n^1.02".
func (f Fit) String() string {
	if f.Points < minFitPoints {
		return "too few points"
	}
	return fmt.Sprintf("n^%.2f, residual %.0f %%, at the end n^%.2f", f.Exponent, 100*f.Residual, f.Last)
}
