package experiment

import (
	"math"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// Platforms have the figures that they were calibrated with, and nearly the other figures of their
// base.
func TestPlatformsHaveTheirBaseFigures(t *testing.T) {
	const fitted, others = 0.05, 0.15
	for _, name := range nics.PlatformNames() {
		p := must.Get(nics.LoadPlatform(name))(t)
		for i := range p.Base {
			b := &p.Base[i]
			if b.Measure == nil {
				continue
			}
			got, err := MeasureBase(p, b)
			if err != nil {
				t.Errorf("%s: %s: %v", name, b.Figure, err)
				continue
			}
			residual := got/b.Value - 1
			t.Logf("%-30s %-55s published %8.4g measured %8.4g %-4s %+6.1f %%", name, b.Figure, b.Value, got, b.Unit, 100*residual)
			if off := math.Abs(residual); b.Fitted && off > fitted || off > others && b.Why == "" {
				t.Errorf("%s: %s: measured %.4g %s, published %.4g", name, b.Figure, got, b.Unit, b.Value)
			}
		}
	}
}
