package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/perf"
)

// The kinds of measurements.
const (
	pingpong = "pingpong"
	stream   = "stream"
)

// measurement is a measurement of ranks, with target ratios to MPICH, with and without ICRC.
type measurement struct {
	Name, Title, Unit          string
	figure                     func(secondsPerMessage float64) float64
	atMost                     bool // targets are maximums, else minimums
	wantRatio, wantRatioNoICRC float64
}

// micros converts seconds per message to microseconds.
func micros(s float64) float64 { return s * 1e6 }

// millions converts seconds per message to millions of messages per second.
func millions(s float64) float64 { return 1 / s / 1e6 }

// gigabits returns the conversion of seconds per message of size bytes to Gb/s.
func gigabits(size float64) func(secondsPerMessage float64) float64 {
	return func(s float64) float64 { return size * 8 / s / 1e9 }
}

// measurements returns all measurements, each with targets for the ratio of our figure to MPICH's,
// with and without ICRC: upper limits if atMost is set, else lower limits. A name is the kind and
// the message size in bytes; figure converts seconds per message to the unit.
func measurements() []measurement {
	return []measurement{
		{Name: pingpong + ":8", Title: "half round trip, 8 B", Unit: "µs", figure: micros, atMost: true, wantRatio: 1, wantRatioNoICRC: 1},
		{Name: pingpong + ":64", Title: "half round trip, 64 B", Unit: "µs", figure: micros, atMost: true, wantRatio: 1, wantRatioNoICRC: 1},
		{Name: pingpong + ":4096", Title: "half round trip, 4 KiB", Unit: "µs", figure: micros, atMost: true, wantRatio: 1, wantRatioNoICRC: 1},
		{Name: stream + ":262144", Title: "bandwidth, 256 KiB", Unit: "Gb/s", figure: gigabits(256 << 10), wantRatio: 0.9, wantRatioNoICRC: 1.1},
		{Name: stream + ":4194304", Title: "bandwidth, 4 MiB", Unit: "Gb/s", figure: gigabits(4 << 20), wantRatio: 0.9, wantRatioNoICRC: 1.1},
		{Name: stream + ":64", Title: "message rate, 64 B", Unit: "M/s", figure: millions, wantRatio: 2, wantRatioNoICRC: 2},
	}
}

// turn has the results of one turn, by measurement name.
type turn map[string]float64

// parseTurn parses the output of rank 0 of a turn, in which one runtime runs all measurements:
// lines with the name of a measurement and its seconds per message, which parseTurn converts to the
// measurement's unit.
func parseTurn(text string) (turn, error) {
	t := turn{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		s, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil || s <= 0 || math.IsInf(s, 0) {
			return nil, fmt.Errorf("the ranks printed %q, which is not a measurement and its seconds", line)
		}
		t[name] = s
	}
	var missing []error
	for _, m := range measurements() {
		s, ok := t[m.Name]
		if !ok {
			missing = append(missing, fmt.Errorf("the ranks ended without %s", m.Name))
		}
		t[m.Name] = m.figure(s)
	}
	return t, errors.Join(missing...)
}

// round has the turns of one round, in the order in which they run.
type round struct {
	MPICH      turn `json:"mpich"`
	Ours       turn `json:"ours"`
	MPICHAgain turn `json:"mpich_again"`
	NoICRC     turn `json:"ours_no_icrc"`
}

// comparison is the result of a measurement.
type comparison struct {
	Name          string  `json:"name"`
	Unit          string  `json:"unit"`
	MPICH         float64 `json:"mpich"` // medians
	Ours          float64 `json:"ours"`
	NoICRC        float64 `json:"ours_no_icrc"`
	Ratio         float64 `json:"ratio"` // ours to MPICH's
	RatioNoICRC   float64 `json:"ratio_no_icrc"`
	Noise         float64 `json:"noise"`
	Target        string  `json:"target"`
	Verdict       string  `json:"verdict"`
	VerdictNoICRC string  `json:"verdict_no_icrc"`
}

// result is the result of a run.
type result struct {
	MPICH       string       `json:"mpich_version"`
	Load        float64      `json:"load"` // at the start
	Comparisons []comparison `json:"comparisons"`
	Rounds      []round      `json:"rounds"`
}

// compare computes a comparison for each measurement, of medians over the rounds. A round is four
// runs of all measurements: MPICH, ours, MPICH again, ours without ICRC. Ours is compared with the
// mean of both MPICH runs, and ours without ICRC with the MPICH run just before.
func compare(rounds []round) (all []comparison) {
	for _, m := range measurements() {
		median := func(value func(r *round) float64) float64 {
			values := make([]float64, len(rounds))
			for i := range rounds {
				values[i] = value(&rounds[i])
			}
			return perf.Median(values)
		}
		meanMPICH := func(r *round) float64 { return (r.MPICH[m.Name] + r.MPICHAgain[m.Name]) / 2 }
		c := comparison{
			Name: m.Title, Unit: m.Unit, MPICH: median(meanMPICH),
			Ours:        median(func(r *round) float64 { return r.Ours[m.Name] }),
			NoICRC:      median(func(r *round) float64 { return r.NoICRC[m.Name] }),
			Ratio:       median(func(r *round) float64 { return r.Ours[m.Name] / meanMPICH(r) }),
			RatioNoICRC: median(func(r *round) float64 { return r.NoICRC[m.Name] / r.MPICHAgain[m.Name] }),
			Noise:       median(func(r *round) float64 { return math.Abs(r.MPICHAgain[m.Name]/r.MPICH[m.Name] - 1) }),
		}
		sign := "≥"
		if m.atMost {
			sign = "≤"
		}
		c.Target = fmt.Sprintf("%s %.1f", sign, m.wantRatio)
		if m.wantRatioNoICRC != m.wantRatio { // then the target has both: with, without ICRC
			c.Target += fmt.Sprintf(", %.1f", m.wantRatioNoICRC)
		}
		c.Verdict = perf.Target{Got: c.Ratio, Want: m.wantRatio, IsMax: m.atMost, Noise: c.Noise}.WithVerdict().Verdict
		c.VerdictNoICRC = perf.Target{Got: c.RatioNoICRC, Want: m.wantRatioNoICRC, IsMax: m.atMost, Noise: c.Noise}.WithVerdict().Verdict
		all = append(all, c)
	}
	return all
}

// missed reports whether a target of a comparison was missed.
func (r *result) missed() bool {
	return slices.ContainsFunc(r.Comparisons, func(c comparison) bool { return c.Verdict == perf.Missed || c.VerdictNoICRC == perf.Missed })
}

// write writes the result as a table.
func (r *result) write(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\tMPICH\tours\tno ICRC\tunit\tratio\tno ICRC\ttarget\tnoise\tverdict\tno ICRC\t")
	for _, c := range r.Comparisons {
		fmt.Fprintf(tab, "%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%s\t%.0f %%\t%s\t%s\t\n",
			c.Name, c.MPICH, c.Ours, c.NoICRC, c.Unit, c.Ratio, c.RatioNoICRC, c.Target, 100*c.Noise, c.Verdict, c.VerdictNoICRC)
	}
	tab.Flush()
	fmt.Fprintf(&b, "\n%s; %d rounds, medians; the load was %.1f when they began\n", r.MPICH, len(r.Rounds), r.Load)
	_, err := io.WriteString(w, b.String())
	return err
}
