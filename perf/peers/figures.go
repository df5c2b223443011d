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

// measurement is a measurement of messages of a size, with target ratios of our figure to that of
// MPICH, with and without ICRC; 0 without a target.
type measurement struct {
	Kind                       string
	Bytes                      int
	Title, Unit                string
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
			Kind: pingpong, Bytes: s.size, Title: "half round trip, " + s.title, Unit: "µs", atMost: true, wantRatio: s.want, wantRatioNoICRC: s.want,
			figure: microseconds,
		})
	}
	for _, s := range []struct {
		size  int
		title string
	}{{64 << 10, "64 KiB"}, {256 << 10, "256 KiB"}, {1 << 20, "1 MiB"}, {4 << 20, "4 MiB"}} {
		all = append(all, measurement{
			Kind: stream, Bytes: s.size, Title: "bandwidth, " + s.title, Unit: "Gb/s", wantRatio: 1, wantRatioNoICRC: 1.1,
			figure: func(seconds float64) float64 { return float64(s.size) * 8 / seconds / 1e9 },
		})
	}
	return append(all, measurement{
		Kind: stream, Bytes: 64, Title: "message rate, 64 B", Unit: "M/s", wantRatio: 4, wantRatioNoICRC: 4,
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

// comparison is the result of a measurement beside one peer.
type comparison struct {
	Name        string  `json:"name"`
	Peer        string  `json:"peer"`
	Unit        string  `json:"unit"`
	Theirs      float64 `json:"theirs"` // medians
	Ours        float64 `json:"ours"`
	NoICRC      float64 `json:"ours_no_icrc"`
	Ratio       float64 `json:"ratio"` // ours to the peer's
	RatioNoICRC float64 `json:"ratio_no_icrc"`
	Noise       float64 `json:"noise"`
	// Target and the verdicts are empty for peers without targets.
	Target        string `json:"target,omitempty"`
	Verdict       string `json:"verdict,omitempty"`
	VerdictNoICRC string `json:"verdict_no_icrc,omitempty"`
}

// skippedPeer is a peer that is not installed.
type skippedPeer struct {
	Name    string `json:"name"`
	Reason  string `json:"reason"`
	Install string `json:"install"` // a command
}

// result is the result of a run.
type result struct {
	Versions    map[string]string `json:"versions"` // by peer
	Skipped     []skippedPeer     `json:"skipped,omitempty"`
	Load        float64           `json:"load"` // at the start
	Comparisons []comparison      `json:"comparisons"`
	Summaries   []summary         `json:"summaries,omitempty"` // of collective operations
	Rounds      []round           `json:"rounds"`
}

// compare computes a comparison for each measurement and each peer that has it, of medians over the
// rounds. Ratios are to the mean of the peer's two turns in the same round, and the noise is the
// difference between the two.
func compare(measurements []measurement, rounds []round, peers []string) (all []comparison) {
	for _, m := range measurements {
		name := m.name()
		for _, p := range peers {
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
			c := comparison{
				Name: m.Title, Peer: p, Unit: m.Unit, Theirs: median(theirs),
				Ours:        median(func(r *round) float64 { return m.figure(r.Ours[name]) }),
				NoICRC:      median(func(r *round) float64 { return m.figure(r.NoICRC[name]) }),
				Ratio:       median(func(r *round) float64 { return m.figure(r.Ours[name]) / theirs(r) }),
				RatioNoICRC: median(func(r *round) float64 { return m.figure(r.NoICRC[name]) / theirs(r) }),
				Noise:       median(func(r *round) float64 { return math.Abs(r.After[p][name]/r.Before[p][name] - 1) }),
			}
			if hasTargets(p) && m.wantRatio > 0 {
				c.judge(&m)
			}
			all = append(all, c)
		}
	}
	return all
}

// judge compares the ratios with the targets of their measurement, and sets the verdicts.
func (c *comparison) judge(m *measurement) {
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
}

// missed reports whether a target of a comparison was missed.
func (r *result) missed() bool {
	return slices.ContainsFunc(r.Comparisons, func(c comparison) bool { return c.Verdict == perf.Missed || c.VerdictNoICRC == perf.Missed }) ||
		slices.ContainsFunc(r.Summaries, func(s summary) bool { return s.Verdict == perf.Missed })
}

// write writes the result as a table with a row for each measurement and peer, and the versions and
// missing peers below it.
func (r *result) write(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "\tpeer\ttheirs\tours\tno ICRC\tunit\tratio\tno ICRC\tnoise\ttarget\tverdict\tno ICRC\t")
	for _, c := range r.Comparisons {
		fmt.Fprintf(tab, "%s\t%s\t%.2f\t%.2f\t%.2f\t%s\t%.2f\t%.2f\t%.0f %%\t%s\t%s\t%s\t\n",
			c.Name, c.Peer, c.Theirs, c.Ours, c.NoICRC, c.Unit, c.Ratio, c.RatioNoICRC, 100*c.Noise, c.Target, c.Verdict, c.VerdictNoICRC)
	}
	tab.Flush()
	fmt.Fprintln(&b)
	for _, p := range allPeers() {
		if v, ok := r.Versions[p.name]; ok {
			fmt.Fprintln(&b, v)
		}
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "%s is skipped: %s; install it with: %s\n", s.Name, s.Reason, s.Install)
	}
	for i := range r.Summaries {
		fmt.Fprintln(&b, &r.Summaries[i])
	}
	rounds := 0 // of each number of ranks
	for _, one := range r.Rounds {
		if one.Ranks == r.Rounds[0].Ranks {
			rounds++
		}
	}
	fmt.Fprintf(&b, "%d rounds, medians; the load was %.1f when they began\n", rounds, r.Load)
	_, err := io.WriteString(w, b.String())
	return err
}
