package perflab

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Comparison is the result of Compare.
type Comparison struct {
	Base, Other float64 // medians
	// Ratio is the median of the ratios of other to base within one round.
	Ratio float64
	// Noise is the median relative difference of the two base runs of a round. A Ratio
	// closer to 1 than that is not significant.
	Noise float64
}

func (c Comparison) String() string {
	return fmt.Sprintf("base %.2f, other %.2f, ratio %.3f (A/A noise %.3f)", c.Base, c.Other, c.Ratio, c.Noise)
}

// Compare runs base, other, base in each round and compares other with the mean of the two
// base runs, so that slow drift cancels out.
func Compare(rounds int, base, other func() (float64, error)) (Comparison, error) {
	if rounds < 1 {
		return Comparison{}, errors.New("compare: want at least one round")
	}
	var bases, others, ratios, noises []float64
	for range rounds {
		var v [3]float64
		for i, measure := range []func() (float64, error){base, other, base} {
			var err error
			if v[i], err = measure(); err != nil {
				return Comparison{}, err
			}
		}
		bases = append(bases, v[0], v[2])
		others = append(others, v[1])
		ratios = append(ratios, v[1]/((v[0]+v[2])/2))
		noises = append(noises, math.Abs(v[2]/v[0]-1))
	}
	return Comparison{Base: median(bases), Other: median(others), Ratio: median(ratios), Noise: median(noises)}, nil
}

// median returns the median of v, which it sorts.
func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
