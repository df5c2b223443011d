package perf

import (
	"context"
	"fmt"
	"math"
)

// Measurement is something that can be measured again and again.
type Measurement struct {
	Name    string
	Unit    string
	Measure func(context.Context) (float64, error)
}

// Series is what a Measurement gave, in order.
type Series struct {
	Name   string    `json:"name"`
	Unit   string    `json:"unit"`
	Values []float64 `json:"values"`
}

// take measures once more.
func (s *Series) take(ctx context.Context, m Measurement) error {
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

// Duel sets a device against a limit. They take turns, the limit before and
// after the device in each round: what changes slower than a round cancels out
// of the ratio, and how much the limit differs from itself is the noise.
type Duel struct {
	Limit, Again, Device Series
}

// Round adds one round.
func (d *Duel) Round(ctx context.Context, limit, device Measurement) error {
	if err := d.Limit.take(ctx, limit); err != nil {
		return err
	}
	if err := d.Device.take(ctx, device); err != nil {
		return err
	}
	if err := d.Again.take(ctx, limit); err != nil {
		return err
	}
	d.Again.Name += ", again"
	return nil
}

// Ratio is the median of the device's figure to the limit's, each taken within
// one round.
func (d *Duel) Ratio() float64 { return Median(d.ratios()) }

func (d *Duel) ratios() []float64 {
	v := make([]float64, len(d.Device.Values))
	for i := range v {
		v[i] = d.Device.Values[i] / ((d.Limit.Values[i] + d.Again.Values[i]) / 2)
	}
	return v
}

// Noise is the median difference of the limit from itself within one round, as
// a fraction of it. A ratio that differs from another by less says nothing.
func (d *Duel) Noise() float64 { return Median(differences(d.Limit.Values, d.Again.Values)) }

// Spread is that of the ratios.
func (d *Duel) Spread() float64 { return Spread(d.ratios()) }

func differences(a, b []float64) []float64 {
	v := make([]float64, len(b))
	for i := range v {
		v[i] = math.Abs(b[i]/a[i] - 1)
	}
	return v
}

// series are all samples.
func (d *Duel) series() []Series { return []Series{d.Limit, d.Device, d.Again} }
