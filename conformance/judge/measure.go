package judge

import (
	"context"
	"errors"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/roce"
	"github.com/fabrictest/fabrictest/report/conform"
)

// Measure measures in a lab how a RoCE device recovers from loss and congestion. Field Position
// of a result is the number of the lost packet in its window. On an error it also returns the
// measurements so far.
func (j *Judge) Measure(ctx context.Context, d *Device) (all []conform.Measured, err error) {
	lab, err := j.Open(d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	var found []roce.Measurement
	err = lab.WithBench(ctx, conformance.BenchSpec{Case: "measure", Defects: d.Defects, Seed: j.Seed}, func(b *conformance.Bench) (err error) {
		found, err = roce.Measure(b)
		return err
	})
	for i := range found {
		m := &found[i]
		all = append(all, conform.Measured{
			Name: m.Name, About: m.About, Unit: m.Unit, Median: m.Value, Least: m.Min(), Most: m.Max(), Samples: m.Samples, Position: m.Position,
		})
	}
	return all, err
}
