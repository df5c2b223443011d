package roce

import (
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Measurement is a quantity with several samples.
type Measurement struct {
	// Name identifies the quantity: "nak/generation", "loss/last/retransmission". About describes it.
	Name, About string
	// Value is the median of the samples.
	Value float64
	Unit  string
	// Samples are in the order of measurement.
	Samples []float64
	// Position is the number of the lost packet in its window of eight, from 1 on; 0 if
	// none was lost.
	Position int
}

// Min is the smallest sample.
func (m *Measurement) Min() float64 { return slices.Min(m.Samples) }

// Max is the largest sample.
func (m *Measurement) Max() float64 { return slices.Max(m.Samples) }

// Units.
const (
	Microseconds = "us"
	Packets      = "packets"
	// Nominal is a time as a multiple of the nominal value of a timer code.
	Nominal = "x nominal"
)

// newMeasurement returns a measurement with the samples, of which there must be at least one.
func newMeasurement(name, about, unit string, samples ...float64) Measurement {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return Measurement{Name: name, About: about, Unit: unit, Samples: samples, Value: (sorted[(n-1)/2] + sorted[n/2]) / 2}
}

// newTiming returns a measurement of times.
func newTiming(name, about string, times ...time.Duration) Measurement {
	return newMeasurement(name, about, Microseconds, multiples(times, time.Microsecond)...)
}

// probe returns one or more measurements. It runs if the device has the capabilities.
type probe struct {
	needs verbs.Caps
	run   func(*Port) []Measurement
}

// probes are in the order of the printed table.
var probes = []probe{
	{0, ackTurnaround},
	{0, nakGeneration},
	{0, nakReaction},
	{0, lossRecovery},
	{0, lossByPosition},
	{0, readRecovery},
	{0, readByPosition},
	{0, impliedNAK},
	{0, timeouts},
	{0, rnrWaits},
	{verbs.CapCongestion, cnpGeneration},
	{verbs.CapCongestion, cnpPacing},
	{verbs.CapCongestion, cnpScope},
	{verbs.CapCongestion, rates},
}

// Measure measures how the device recovers from packet loss and reacts to congestion, like
// Lumina (SIGCOMM 2023) but without a programmable switch: the scripted peer omits packets,
// ignores received ones or sends marked ones, and timestamps every packet. Times include the
// network path in both directions, or one direction if the device acts on a timer; the
// turnaround time of an ACK is measured for comparison. It runs all probes that the device
// supports. After an error it returns the measurements made before.
func Measure(b *conformance.Bench) (all []Measurement, err error) {
	err = OnPort(func(p *Port) {
		for _, probe := range probes {
			if p.Caps.Has(probe.needs) {
				all = append(all, probe.run(p)...)
			}
		}
	})(b)
	return all, err
}

// noteAll adds measurements to the record of the case.
func noteAll(p *Port, all []Measurement) []Measurement {
	for _, m := range all {
		p.Note("%s: %.4g %s (%.4g to %.4g, %d samples)", m.Name, m.Value, m.Unit, m.Min(), m.Max(), len(m.Samples))
	}
	return all
}

// byName returns a measurement by its name.
func byName(all []Measurement, name string) *Measurement {
	i := slices.IndexFunc(all, func(m Measurement) bool { return m.Name == name })
	return &all[i]
}

// sampleCount is the number of samples of measurements that take only a round trip.
func sampleCount(p *Port) int {
	if p.Virtual {
		return 20
	}
	return 50
}
