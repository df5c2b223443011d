package perf

import (
	"context"
	"fmt"
	"math"
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

// measure adds one value.
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

// Round adds one round.
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
	d.BaselineAgain.Name += ", again"
	return nil
}

// Ratio returns the median ratio of the device to the baseline of the same round.
func (d *PairedSeries) Ratio() float64 { return Median(d.ratios()) }

func (d *PairedSeries) ratios() []float64 {
	v := make([]float64, len(d.Device.Values))
	for i := range v {
		v[i] = d.Device.Values[i] / ((d.Baseline.Values[i] + d.BaselineAgain.Values[i]) / 2)
	}
	return v
}

// Noise returns the median relative difference of the two baselines of a round.
// Ratios that differ by less are indistinguishable.
func (d *PairedSeries) Noise() float64 {
	return Median(differences(d.Baseline.Values, d.BaselineAgain.Values))
}

func differences(a, b []float64) []float64 {
	v := make([]float64, len(b))
	for i := range v {
		v[i] = math.Abs(b[i]/a[i] - 1)
	}
	return v
}

func (d *PairedSeries) series() []Series { return []Series{d.Baseline, d.Device, d.BaselineAgain} }
