package perf

import (
	"context"
	"fmt"
	"math"
	"slices"
)

// Measurement is a measurement that can be repeated.
type Measurement struct {
	Name    string
	Unit    string
	Measure func(context.Context) (float64, error)
}

// Series has the values of a Measurement, in order.
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// measure measures once and adds the value, which must be positive and finite.
func (s *Series) measure(ctx context.Context, m Measurement) error {
	v, err := m.Measure(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Errorf("%s: measured %v %s", m.Name, v, m.Unit)
	}
	s.Name, s.Unit = m.Name, m.Unit
	s.Values = append(s.Values, v)
	return nil
}

// PairedSeries compares a device with a baseline. Each round measures the baseline,
// the device, and the baseline again: slow changes of the machine cancel out in the
// ratio, and the difference of the baselines is the noise.
type PairedSeries struct {
	Baseline, BaselineAgain, Device Series
}

// Round measures the baseline, the device, and the baseline again.
func (d *PairedSeries) Round(ctx context.Context, baseline, device Measurement) error {
	if err := d.Baseline.measure(ctx, baseline); err != nil {
		return err
	}
	if err := d.Device.measure(ctx, device); err != nil {
		return err
	}
	if err := d.BaselineAgain.measure(ctx, baseline); err != nil {
		return err
	}
	d.BaselineAgain.Name = baseline.Name + ", again"
	return nil
}

// Ratio returns the median over the rounds of the device's value divided by the mean baseline.
func (d *PairedSeries) Ratio() float64 {
	v := make([]float64, len(d.Device.Values))
	for i := range v {
		v[i] = d.Device.Values[i] / ((d.Baseline.Values[i] + d.BaselineAgain.Values[i]) / 2)
	}
	return Median(v)
}

// Noise returns the median relative difference of the two baselines of a round.
// Ratios that differ by less are indistinguishable.
func (d *PairedSeries) Noise() float64 {
	return Median(differences(d.Baseline.Values, d.BaselineAgain.Values))
}

// differences returns for each value of b how far it is from that of a, as a share of a and without
// its sign: 0.1 if it is 10 % more or less.
func differences(a, b []float64) []float64 {
	v := make([]float64, len(b))
	for i := range v {
		v[i] = math.Abs(b[i]/a[i] - 1)
	}
	return v
}

// Median returns the median of v; NaN if v is empty.
func Median(v []float64) float64 { return quantile(v, 0.5) }

// Spread returns the interquartile range of v relative to its median; 0 if the median is 0.
func Spread(v []float64) float64 {
	if m := Median(v); m != 0 {
		return (quantile(v, 0.75) - quantile(v, 0.25)) / m
	}
	return 0
}

// quantile returns the q-quantile of v by linear interpolation; NaN if v is empty.
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
