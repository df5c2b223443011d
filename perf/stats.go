package perf

import (
	"math"
	"slices"
)

// Median is the middle of v, or the mean of the two in the middle; NaN of none.
func Median(v []float64) float64 { return quantile(v, 0.5) }

// Spread is the distance between the quartiles of v, as a fraction of its
// median.
func Spread(v []float64) float64 {
	if m := Median(v); m != 0 {
		return (quantile(v, 0.75) - quantile(v, 0.25)) / m
	}
	return 0
}

// quantile interpolates between the two values nearest to q.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	low := int(at)
	high := min(low+1, len(s)-1)
	return s[low] + (at-float64(low))*(s[high]-s[low])
}
