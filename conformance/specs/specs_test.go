package specs_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/deviations"
	"github.com/fabrictest/fabrictest/conformance/specs"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/nics"
)

func TestSpecs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Conformance of the emulated devices")
}

var _ = Describe("in simulation", func() {
	for _, d := range []struct {
		name     string
		protocol suites.Protocol
	}{{"softroce", suites.RoCE}, {"softiwarp", suites.IWARP}, {"dgiwarp", suites.DatagramIWARP}} {
		Describe(d.name, Label("device:"+d.name), func() {
			p, err := nics.Find(d.name)
			if err != nil {
				panic(err)
			}
			known, err := deviations.Of(d.name, "sim")
			if err != nil {
				panic(err)
			}
			lab := bench.InSimulation(p, bench.SimOptions{})
			for _, s := range suites.Of(d.protocol) {
				Describe(s.Title, func() {
					specs.Add(s, func() conformance.Lab { return lab }, conformance.Options{Seed: 1, Deviations: known})
				})
			}
		})
	}
})
