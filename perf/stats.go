package perf

import (
	"math"
	"slices"
)

// Median returns the median of v; NaN if it is empty.
func Median(v []float64) float64 { return quantile(v, 0.5) }

// Spread returns the interquartile range of v relative to its median.
func Spread(v []float64) float64 {
	if m := Median(v); m != 0 {
		return (quantile(v, 0.75) - quantile(v, 0.25)) / m
	}
	return 0
}

// quantile returns the q-quantile of v by linear interpolation.
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
