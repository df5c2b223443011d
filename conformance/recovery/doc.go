// Package recovery measures how a RoCE device gets over losses and congestion, in the
// manner of Lumina (SIGCOMM 2023) and without its switch: the raw peer at the other
// end of the cable is the lossy network. It leaves out what it would have sent, does
// not look at what came, and marks what it sends; and it knows when each packet
// passed. All times include the way to the device and back, or once if the device
// acts by itself: the turnaround of an ACK is measured as well, to be held against.
//
// [Measure] returns all that can be measured as data. The cases ask the same probes,
// and hold what they say against what the specification demands: a timer is never
// early and at most four times late, a gap is told by one NAK, a NAK waits for no
// timer. What it leaves open is measured and not judged.
package recovery

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rcpeer"
	"github.com/fabrictest/fabrictest/verbs"
)

// Measurement is something that was measured, several times.
type Measurement struct {
	// Name says what: "nak/generation", "loss/last/retransmission".
	Name string `json:"name"`
	// Value is the median of the samples.
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Samples are in the order in which they were taken.
	Samples []float64 `json:"samples"`
	// Position is where in a window of eight packets the one was that was lost, from 1
	// on; 0 if it is about none.
	Position int `json:"position,omitempty"`
}

// Least is the smallest sample.
func (m *Measurement) Least() float64 { return slices.Min(m.Samples) }

// Most is the largest sample.
func (m *Measurement) Most() float64 { return slices.Max(m.Samples) }

// Units.
const (
	Microseconds = "us"
	Packets      = "packets"
	// Nominal is a time as a multiple of the one that a timer's code stands for.
	Nominal = "x nominal"
)

// measured makes a measurement of samples, of which there is at least one.
func measured(name, unit string, samples []float64) Measurement {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	return Measurement{Name: name, Unit: unit, Samples: samples, Value: (sorted[(n-1)/2] + sorted[n/2]) / 2}
}

// timed makes a measurement of times.
func timed(name string, times []time.Duration) Measurement {
	samples := make([]float64, len(times))
	for i, t := range times {
		samples[i] = float64(t) / float64(time.Microsecond)
	}
	return measured(name, Microseconds, samples)
}

// probe measures some things.
type probe struct {
	needs verbs.Caps
	run   func(*rcpeer.Port) []Measurement
}

// probes are all that there are, in the order of the table.
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

// Measure measures all that the device has, and returns what it has until something
// goes wrong.
func Measure(b *conformance.Bench) (all []Measurement, err error) {
	err = rcpeer.On(func(p *rcpeer.Port) {
		for _, probe := range probes {
			if p.Caps.Has(probe.needs) {
				all = append(all, probe.run(p)...)
			}
		}
	})(b)
	return all, err
}

// WriteJSON writes measurements as an array.
func WriteJSON(w io.Writer, all []Measurement) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(all)
}

// WriteText writes measurements as a table.
func WriteText(w io.Writer, all []Measurement) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "measurement\tmedian\tleast\tmost\tunit\tsamples\t")
	for i := range all {
		m := &all[i]
		fmt.Fprintf(t, "%s\t%.4g\t%.4g\t%.4g\t%s\t%d\t\n", m.Name, m.Value, m.Least(), m.Most(), m.Unit, len(m.Samples))
	}
	return t.Flush()
}

// note keeps measurements in the record of a case.
func note(p *rcpeer.Port, all []Measurement) []Measurement {
	for _, m := range all {
		p.Note("%s: %.4g %s (%.4g to %.4g, %d samples)", m.Name, m.Value, m.Unit, m.Least(), m.Most(), len(m.Samples))
	}
	return all
}

// find returns a measurement by its name.
func find(all []Measurement, name string) *Measurement {
	i := slices.IndexFunc(all, func(m Measurement) bool { return m.Name == name })
	return &all[i]
}

// repeated is how often something is measured that takes no longer than a packet.
func repeated(p *rcpeer.Port) int {
	if p.Virtual {
		return 20
	}
	return 50
}
