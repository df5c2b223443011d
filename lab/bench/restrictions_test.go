package bench

import (
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/verbs"
)

// Partners are not restricted.
func TestRestrictionsApplyToDeviceUnderTest(t *testing.T) {
	p := must.Get(nics.Find("softroce"))(t)
	lab := InSimulation(p, SimOptions{Restrictions: nics.Restrictions{MissingCaps: verbs.CapXRC, PKeys: []uint16{0xffff}}})
	must.Do(t, lab.WithBench(t.Context(), conformance.BenchSpec{Case: "a/b/c", Seed: 1}, func(b *conformance.Bench) error {
		own, err := b.Device.QueryDevice()
		if err != nil {
			return err
		}
		port, err := b.Device.QueryPort(1)
		if err != nil {
			return err
		}
		if b.Caps.Has(verbs.CapXRC) || own.Caps != b.Caps || !b.Caps.Has(verbs.CapRC) || port.PKeys != 1 {
			t.Errorf("the bench has %#x, the device %#x and %d partitions", b.Caps, own.Caps, port.PKeys)
		}
		partner, err := b.Partner()
		if err != nil {
			return err
		}
		other, err := partner.QueryDevice()
		if !other.Caps.Has(verbs.CapXRC) {
			t.Errorf("its partner has %#x", other.Caps)
		}
		return err
	}))
}
