package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/perf"
	"github.com/fabrictest/fabrictest/report/peers"
)

// The kinds of measurements.
const (
	pingpong = "pingpong"
	stream   = "stream"
)

// The metrics of messages between two ranks. That of a collective operation is its kind.
const (
	halfRoundTrip = "half round trip"
	bandwidth     = "bandwidth"
	messageRate   = "message rate"
)

// measurement is a measurement of messages of a size, with target ratios of our figure to that of
// MPICH, with and without ICRC; 0 without a target.
type measurement struct {
	Kind                       string
	Bytes                      int
	Ranks                      int
	Metric, Title, Unit        string // Title is the metric with the size
	figure                     func(secondsPerMessage float64) float64
	atMost                     bool // targets are maximums, else minimums
	wantRatio, wantRatioNoICRC float64
}

// name is how a measurement is called in the arguments and the output of ranks.
func (m *measurement) name() string { return m.Kind + ":" + strconv.Itoa(m.Bytes) }

// isPairKind reports whether a kind of measurement is of messages between two ranks.
func isPairKind(kind string) bool { return kind == pingpong || kind == stream }

// pairMeasurements returns the measurements of two ranks: half round trips, bandwidths and a message
// rate.
func pairMeasurements() (all []measurement) {
	for _, s := range []struct {
		size  int
		title string
		want  float64
	}{{8, "8 B", 0.9}, {64, "64 B", 0.9}, {1 << 10, "1 KiB", 0.9}, {4 << 10, "4 KiB", 0.9}, {16 << 10, "16 KiB", 0}, {64 << 10, "64 KiB", 0}} {
		all = append(all, measurement{
			Kind: pingpong, Bytes: s.size, Ranks: 2, Metric: halfRoundTrip, Title: halfRoundTrip + ", " + s.title, Unit: "µs", atMost: true, wantRatio: s.want, wantRatioNoICRC: s.want,
			figure: microseconds,
		})
	}
	for _, s := range []struct {
		size  int
		title string
	}{{64 << 10, "64 KiB"}, {256 << 10, "256 KiB"}, {1 << 20, "1 MiB"}, {4 << 20, "4 MiB"}} {
		all = append(all, measurement{
			Kind: stream, Bytes: s.size, Ranks: 2, Metric: bandwidth, Title: bandwidth + ", " + s.title, Unit: "Gb/s", wantRatio: 1, wantRatioNoICRC: 1.1,
			figure: func(seconds float64) float64 { return float64(s.size) * 8 / seconds / 1e9 },
		})
	}
	return append(all, measurement{
		Kind: stream, Bytes: 64, Ranks: 2, Metric: messageRate, Title: messageRate + ", 64 B", Unit: "M/s", wantRatio: 4, wantRatioNoICRC: 4,
		figure: func(seconds float64) float64 { return 1 / seconds / 1e6 },
	})
}

// turn has the results of one runtime or program in one turn: seconds per message by measurement
// name.
type turn map[string]float64

// parseTurn parses the output of rank 0: lines with the name of a measurement and its seconds per
// message. Each of the measurements must be there.
func parseTurn(text string, wanted []measurement) (turn, error) {
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
	for _, m := range wanted {
		if t[m.name()] == 0 {
			missing = append(missing, fmt.Errorf("the ranks ended without %s", m.name()))
		}
	}
	return t, errors.Join(missing...)
}

// round has the turns of one round. It runs every peer, then our runtime with and without ICRC, and
// then every peer again in reverse order, so that a steady change of the machine's speed cancels out.
type round struct {
	Ranks  int             `json:"ranks"`
	Ours   turn            `json:"ours"`
	NoICRC turn            `json:"ours_no_icrc"`
	Before map[string]turn `json:"before"` // by peer
	After  map[string]turn `json:"after"`
}

// result is the result of a run, with every figure.
type result struct {
	peers.Run
	Turns []round `json:"turns"`
}

// compare computes a comparison for each measurement and each peer that has it, of medians over the
// rounds. Ratios are to the mean of the peer's two turns in the same round, and the noise is the
// difference between the two.
func compare(measurements []measurement, rounds []round, names []string) (all []peers.Comparison) {
	for _, m := range measurements {
		name := m.name()
		for _, p := range names {
			if len(rounds) == 0 || rounds[0].Before[p][name] == 0 {
				continue // the program of this peer has no such measurement
			}
			median := func(value func(r *round) float64) float64 {
				values := make([]float64, len(rounds))
				for i := range rounds {
					values[i] = value(&rounds[i])
				}
				return perf.Median(values)
			}
			theirs := func(r *round) float64 { return (m.figure(r.Before[p][name]) + m.figure(r.After[p][name])) / 2 }
			c := peers.Comparison{
				Name: m.Title, Metric: m.Metric, Ranks: m.Ranks, Bytes: m.Bytes, Peer: p, Unit: m.Unit, LessWins: m.atMost, Theirs: median(theirs),
				Ours:        median(func(r *round) float64 { return m.figure(r.Ours[name]) }),
				NoICRC:      median(func(r *round) float64 { return m.figure(r.NoICRC[name]) }),
				Ratio:       median(func(r *round) float64 { return m.figure(r.Ours[name]) / theirs(r) }),
				RatioNoICRC: median(func(r *round) float64 { return m.figure(r.NoICRC[name]) / theirs(r) }),
				Noise:       median(func(r *round) float64 { return math.Abs(r.After[p][name]/r.Before[p][name] - 1) }),
			}
			if hasTargets(p) && m.wantRatio > 0 {
				judge(&c, &m)
			}
			all = append(all, c)
		}
	}
	return all
}

// judge compares the ratios with the targets of their measurement, and sets the verdicts.
func judge(c *peers.Comparison, m *measurement) {
	sign := "≥"
	if m.atMost {
		sign = "≤"
	}
	c.Want, c.Target = m.wantRatio, fmt.Sprintf("%s %.1f", sign, m.wantRatio)
	if m.wantRatioNoICRC != m.wantRatio { // then the target has both: with, without ICRC
		c.Target += fmt.Sprintf(", %.1f", m.wantRatioNoICRC)
	}
	c.Verdict = perf.Target{Got: c.Ratio, Want: m.wantRatio, IsMax: m.atMost, Noise: c.Noise}.WithVerdict().Verdict
	c.VerdictNoICRC = perf.Target{Got: c.RatioNoICRC, Want: m.wantRatioNoICRC, IsMax: m.atMost, Noise: c.Noise}.WithVerdict().Verdict
}
