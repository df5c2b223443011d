package perf

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is the result of a run.
type Result struct {
	Ratios  Ratios       `json:"ratios"`
	Rates   Rates        `json:"rates"`
	Memory  Memory       `json:"memory"`
	Streams []StreamRate `json:"streams"`
	// Comparisons are all comparisons, if there are more than in Ratios.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Noise is the maximum of Noises.
	Noise   float64  `json:"noise"`
	Noises  Noises   `json:"noises"`
	Targets []Target `json:"targets"`
	Samples []Series `json:"samples"`
	Seconds float64  `json:"seconds"`
}

// Ratios compare a device with plain sockets.
type Ratios struct {
	WriteToLimit          float64 `json:"write_to_limit"`
	WriteToLimitOffloaded float64 `json:"write_to_limit_offloaded"`
	// LatencyToRaw is the maximum of the two below, which are the maximum over all sizes.
	LatencyToRaw         float64 `json:"latency_to_raw"`
	LatencyToRawSpinning float64 `json:"latency_to_raw_spinning"`
	LatencyToRawBlocking float64 `json:"latency_to_raw_blocking"`
	// Datagrams compare datagram-iWARP with soft-iWARP; nil if not measured.
	Datagrams *DatagramRatios `json:"datagrams,omitempty"`
}

// DatagramRatios compare datagrams with connections.
type DatagramRatios struct {
	LatencySpinning float64 `json:"latency_spinning"`
	LatencyBlocking float64 `json:"latency_blocking"`
	// Bandwidth is for messages that are posted singly, BandwidthBursts for bursts.
	Bandwidth       float64 `json:"bandwidth"`
	BandwidthBursts float64 `json:"bandwidth_bursts"`
}

// Rates are for messages of 64 bytes.
type Rates struct {
	Send64PerS float64 `json:"send64_per_s"`
	// QPsFlatness is the lowest rate over all numbers of queue pairs, relative to one.
	QPsFlatness float64  `json:"qps_flatness"`
	ByQPs       []QPRate `json:"by_qps"`
}

// QPRate is the rate over a number of queue pairs.
type QPRate struct {
	QPs  int     `json:"qps"`
	PerS float64 `json:"per_s"`
}

// Memory is the memory of a host's process.
type Memory struct {
	IdleMB float64 `json:"idle_mb"`
}

// StreamRate is the goodput of one operation and message size.
type StreamRate struct {
	Op     string  `json:"op"`
	Bytes  int     `json:"bytes"`
	Gbps   float64 `json:"gbps"`
	Spread float64 `json:"spread"`
}

// Comparison is the result of a PairedSeries.
type Comparison struct {
	Name  string  `json:"name"`
	To    string  `json:"to"`
	Unit  string  `json:"unit"`
	Got   float64 `json:"got"`   // median of the device
	Limit float64 `json:"limit"` // mean of the two medians of the baseline
	Ratio float64 `json:"ratio"`
	Noise float64 `json:"noise"`
}

// Noises are the noises of the comparisons of a run.
type Noises struct {
	Write     float64 `json:"write"`
	Spinning  float64 `json:"spinning"`
	Blocking  float64 `json:"blocking"`
	Rate      float64 `json:"rate"`
	Datagrams float64 `json:"datagrams,omitempty"`
}

// Target is a required value of a figure.
type Target struct {
	Name  string  `json:"name"`
	Got   float64 `json:"got"`
	Want  float64 `json:"want"`
	IsMax bool    `json:"most"` // Want is a maximum, else a minimum
	Unit  string  `json:"unit,omitempty"`
	Noise float64 `json:"noise"`
	// Verdict is "holds", "missed" or "unclear".
	Verdict string `json:"verdict"`
}

// Verdicts on a target. A target that is missed by less than the noise is unclear; in a noisy
// run, so is every target that is not met by more than the noise.
const (
	Holds   = "holds"
	Missed  = "missed"
	Unclear = "unclear"
)

// NoisyThreshold is the noise at and above which a run is inconclusive.
const NoisyThreshold = 0.15

// WithVerdict returns the target with its verdict. A target missed by less than the noise is
// Unclear. If the noise is NoisyThreshold or more, a target is Unclear unless it is met by more
// than the noise.
func (t Target) WithVerdict() Target {
	worst, best := t.Got*(1-t.Noise), t.Got*(1+t.Noise) // the range of the value without noise
	if t.IsMax {
		worst, best = best, worst
	}
	reached := func(got float64) bool { return t.IsMax && got <= t.Want || !t.IsMax && got >= t.Want }
	switch {
	case reached(worst), reached(t.Got) && t.Noise < NoisyThreshold:
		t.Verdict = Holds
	case reached(best), t.Noise >= NoisyThreshold:
		t.Verdict = Unclear
	default:
		t.Verdict = Missed
	}
	return t
}

// The targets of devices relative to plain sockets: the goodput of WRITEs of 1 MiB, with CRC, and
// the time of half round trips.
const minWriteRatio, maxLatencyRatio = 0.6, 1.6

// quickTargets returns the targets of a quick run, for two hosts with a core each. q.Ratios compare
// with bare sockets; QPsFlatness is the lowest rate over several QPs, relative to that over one.
func (q *Result) quickTargets() []Target {
	return []Target{
		{Name: "write of 1 MiB to bare sockets", Got: q.Ratios.WriteToLimit, Want: minWriteRatio, Noise: q.Noises.Write},
		{Name: "half round trip of 8 B to bare sockets, spinning", Got: q.Ratios.LatencyToRawSpinning, Want: maxLatencyRatio, IsMax: true, Noise: q.Noises.Spinning},
		{Name: "half round trip of 8 B to bare sockets, blocking", Got: q.Ratios.LatencyToRawBlocking, Want: maxLatencyRatio, IsMax: true, Noise: q.Noises.Blocking},
		{Name: "sends of 64 B, depth 64", Got: q.Rates.Send64PerS, Want: 600_000, Unit: "1/s", Noise: q.Noises.Rate},
		{Name: "the same over up to 64 QPs to that over one", Got: q.Rates.QPsFlatness, Want: 0.8, Noise: q.Noises.Rate},
		q.memoryTarget(),
	}
}

// memoryTarget returns the target for the resident memory of an idle host.
func (q *Result) memoryTarget() Target {
	return Target{Name: "memory of an idle host", Got: q.Memory.IdleMB, Want: 40, IsMax: true, Unit: "MB"}
}

// withVerdicts sets the verdict of each target.
func withVerdicts(all []Target) []Target {
	for i := range all {
		all[i] = all[i].WithVerdict()
	}
	return all
}

// Verdict returns Missed if a target is missed, else Unclear if one is unclear, else Holds.
func (q *Result) Verdict() string {
	worst := Holds
	for _, t := range q.Targets {
		switch t.Verdict {
		case Missed:
			return Missed
		case Unclear:
			worst = Unclear
		}
	}
	return worst
}

// WriteTable writes the result as text tables: targets, comparisons, message rates and streams.
func (q *Result) WriteTable(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "target\tgot\twant\tnoise\t")
	for _, t := range q.Targets {
		sign := "≥"
		if t.IsMax {
			sign = "≤"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s %s\t%s\t%s\n", t.Name, formatValue(t.Got, t.Unit), sign, formatValue(t.Want, t.Unit), percent(t.Noise), t.Verdict)
	}
	// "Without work": the sockets neither copy nor compute CRCs, as the devices compute no CRCs.
	if q.Comparisons == nil { // else writeComparisons shows this ratio
		fmt.Fprintf(tab, "\nwith the CRC of packets offloaded: write of 1 MiB to bare sockets without work\t%s\n", formatValue(q.Ratios.WriteToLimitOffloaded, ""))
	}
	tab.Flush()
	q.writeComparisons(&b, tab)

	b.WriteString("\n")
	fmt.Fprintln(tab, "queue pairs\tsends of 64 B\t")
	for _, r := range q.Rates.ByQPs {
		fmt.Fprintf(tab, "%d\t%s\t\n", r.QPs, formatValue(r.PerS, "1/s"))
	}
	tab.Flush()

	b.WriteString("\n")
	q.writeStreams(tab)
	tab.Flush()
	fmt.Fprintf(&b, "\n%.1f s, A/A noise %s\n", q.Seconds, percent(q.Noise))
	if q.Noise >= NoisyThreshold {
		fmt.Fprintf(&b, "The machine was too noisy to conclude much: the same measurement, repeated, differed by %s. Try again when the machine is idle.\n", percent(q.Noise))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeComparisons writes a table for each baseline. tab writes to b.
func (q *Result) writeComparisons(b *strings.Builder, tab *tabwriter.Writer) {
	baseline := ""
	for _, c := range q.Comparisons {
		if c.To != baseline {
			tab.Flush()
			baseline = c.To
			fmt.Fprintf(b, "\ncompared with %s\n", baseline)
			fmt.Fprintln(tab, "\tgot\tlimit\tratio\tnoise\t")
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t\n", c.Name, formatWithUnit(c.Got, c.Unit), formatWithUnit(c.Limit, c.Unit), formatValue(c.Ratio, ""), percent(c.Noise))
	}
	tab.Flush()
}

// writeStreams writes a table of the goodput of streams: a row for each message size and a
// column for each operation.
func (q *Result) writeStreams(w io.Writer) {
	type cell struct {
		bytes int
		op    string
	}
	gbps := map[cell]float64{}
	var sizes []int
	var ops []string
	for _, s := range q.Streams {
		gbps[cell{s.Bytes, s.Op}] = s.Gbps
		if !slices.Contains(sizes, s.Bytes) {
			sizes = append(sizes, s.Bytes)
		}
		if !slices.Contains(ops, s.Op) {
			ops = append(ops, s.Op)
		}
	}
	if len(sizes) == 0 {
		return
	}
	fmt.Fprintf(w, "Gb/s\t%s\t\n", strings.Join(ops, "\t"))
	for _, bytes := range sizes {
		fmt.Fprintf(w, "%s\t", sizeName(bytes))
		for _, op := range ops {
			fmt.Fprintf(w, "%.2f\t", gbps[cell{bytes, op}])
		}
		fmt.Fprintln(w)
	}
}

// formatValue formats a value in short form: rates in millions per second, ratios without a unit.
func formatValue(v float64, unit string) string {
	switch unit {
	case "":
		return fmt.Sprintf("%.2f", v)
	case "1/s":
		return fmt.Sprintf("%.2f M/s", v/1e6)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

// formatWithUnit formats a value with two decimals.
func formatWithUnit(v float64, unit string) string { return fmt.Sprintf("%.2f %s", v, unit) }

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
