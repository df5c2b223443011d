package perf

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// WriteTable writes the result as text.
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
	if q.Comparisons == nil {
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
		fmt.Fprintf(&b, "The machine was too noisy to conclude much: measured twice, the same thing differed by %s. Try again when it is idle.\n", percent(q.Noise))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeComparisons writes a table for each baseline.
func (q *Result) writeComparisons(b *strings.Builder, tab *tabwriter.Writer) {
	to := ""
	for _, c := range q.Comparisons {
		if c.To != to {
			tab.Flush()
			to = c.To
			fmt.Fprintf(b, "\nbeside %s\n", to)
			fmt.Fprintln(tab, "\tgot\tlimit\tratio\tnoise\t")
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%s\t%s\t\n", c.Name, formatExact(c.Got, c.Unit), formatExact(c.Limit, c.Unit), formatValue(c.Ratio, ""), percent(c.Noise))
	}
	tab.Flush()
}

// writeStreams writes a row for each size and a column for each operation.
func (q *Result) writeStreams(w io.Writer) {
	rows := map[int]map[string]float64{}
	var sizes []int
	for _, s := range q.Streams {
		if rows[s.Bytes] == nil {
			rows[s.Bytes] = map[string]float64{}
			sizes = append(sizes, s.Bytes)
		}
		rows[s.Bytes][s.Op] = s.Gbps
	}
	if len(sizes) == 0 {
		return
	}
	ops := operations(q.Streams)
	fmt.Fprintf(w, "Gb/s\t%s\t\n", strings.Join(ops, "\t"))
	for _, n := range sizes {
		fmt.Fprintf(w, "%s\t", sizeName(n))
		for _, op := range ops {
			fmt.Fprintf(w, "%.2f\t", rows[n][op])
		}
		fmt.Fprintln(w)
	}
}

// operations returns the operations of streams, each once, in order.
func operations(streams []StreamRate) (ops []string) {
	seen := map[string]bool{}
	for _, s := range streams {
		if !seen[s.Op] {
			seen[s.Op] = true
			ops = append(ops, s.Op)
		}
	}
	return ops
}

func formatValue(v float64, unit string) string {
	switch unit {
	case "":
		return fmt.Sprintf("%.2f", v)
	case "1/s":
		return fmt.Sprintf("%.2f M/s", v/1e6)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

func formatExact(v float64, unit string) string { return fmt.Sprintf("%.2f %s", v, unit) }

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
