package roce

import (
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/verbs"
)

// Measurement is a quantity with several samples.
type Measurement struct {
	// Name identifies the quantity: "nak/generation", "loss/last/retransmission".
	Name string `json:"name"`
	// Value is the median of the samples.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Samples are in the order of measurement.
	Samples []float64 `json:"samples"`
	// Position is the number of the lost packet in its window of eight, from 1 on; 0 if
	// none was lost.
	Position int `json:"position,omitempty"`
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
func newMeasurement(name, unit string, samples []float64) Measurement {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return Measurement{Name: name, Unit: unit, Samples: samples, Value: (sorted[(n-1)/2] + sorted[n/2]) / 2}
}

// newTiming returns a measurement of times.
func newTiming(name string, times []time.Duration) Measurement {
	samples := make([]float64, len(times))
	for i, t := range times {
		samples[i] = float64(t) / float64(time.Microsecond)
	}
	return newMeasurement(name, Microseconds, samples)
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

// descriptions explain measurements. The entry with the longest prefix of a measurement's
// name applies.
var descriptions = []struct{ prefix, about string }{
	{"ack/turnaround", "from a request to its ACK: the round-trip time, for comparison with the others"},
	{"nak/generation", "from the packet after a gap to the NAK"},
	{"nak/for-a-gap", "NAKs for a gap followed by four packets"},
	{"nak/reaction/first", "from a NAK for the first packet of eight to its retransmission"},
	{"nak/reaction/middle", "from a NAK for the fifth packet of eight to its retransmission"},
	{"nak/reaction/last", "from a NAK for the last packet of eight to its retransmission"},
	{"loss/timer", "the local ACK timeout in the following measurements"},
	{"loss/first/retransmission", "from the first packet of eight, which is lost, to its retransmission"},
	{"loss/middle/retransmission", "from the fifth packet of eight, which is lost, to its retransmission"},
	{"loss/last/retransmission", "from the last packet of eight, which is lost, to its retransmission"},
	{"loss/first/sent-again", "packets retransmitted after the loss of the first of eight"},
	{"loss/middle/sent-again", "packets retransmitted after the loss of the fifth of eight"},
	{"loss/last/sent-again", "packets retransmitted after the loss of the last of eight"},
	{"loss/last/timeout", "the time to the retransmission of the last packet, in timeouts"},
	{"loss/at-", "from a packet of eight, which is lost, to its retransmission"},
	{"read/first/reaction", "from the response after the first, which is lost, to the new READ request"},
	{"read/middle/reaction", "from the response after the fifth, which is lost, to the new READ request"},
	{"read/last/reaction", "from the response before the last, which is lost, to the new READ request"},
	{"read/first/asked-again", "responses requested again when the first was lost"},
	{"read/middle/asked-again", "responses requested again when the fifth was lost"},
	{"read/last/asked-again", "responses requested again when the last was lost"},
	{"read/at-", "from the response after one of eight, which is lost, to the new READ request"},
	{"read/implied-nak", "from an ACK of a request after a READ to the retransmitted READ"},
	{"timeout/code-7", "between retransmissions, with a timeout of 0.5 ms"},
	{"timeout/code-10", "between retransmissions, with a timeout of 4.2 ms"},
	{"timeout/code-12", "between retransmissions, with a timeout of 16.8 ms"},
	{"rnr/wait/code-1", "from an RNR NAK to the retransmission, with a timer of 10 us"},
	{"rnr/wait/code-12", "from an RNR NAK to the retransmission, with a timer of 0.64 ms"},
	{"rnr/wait/code-20", "from an RNR NAK to the retransmission, with a timer of 10.24 ms"},
	{"rnr/wait/code-25", "from an RNR NAK to the retransmission, with a timer of 61.44 ms"},
	{"cnp/generation", "from a marked packet to the CNP"},
	{"cnp/for-a-mark", "CNPs for a single marked packet"},
	{"cnp/marks-apart", "between marked packets sent back to back"},
	{"cnp/for-500-marks", "CNPs for 500 marked packets"},
	{"cnp/apart", "between the CNPs for 500 marked packets"},
	{"cnp/two-qps-of-a-peer", "CNPs for two queue pairs of one peer, marked at the same time"},
	{"cnp/qp-of-another-peer", "CNPs for a queue pair of another peer, marked at the same time"},
	{"rate/burst/before", "duration of 60 packets before any CNP"},
	{"rate/burst/behind-a-cnp", "duration of 60 packets after a CNP"},
	{"rate/burst/behind-ten", "duration of 60 packets after ten CNPs"},
	{"rate/comes-back", "from the tenth CNP until 60 packets take at most twice as long as before"},
}

// About describes what was measured.
func (m *Measurement) About() (about string) {
	longest := 0
	for _, a := range descriptions {
		if len(a.prefix) > longest && strings.HasPrefix(m.Name, a.prefix) {
			about, longest = a.about, len(a.prefix)
		}
	}
	return about
}
