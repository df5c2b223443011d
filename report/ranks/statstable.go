package ranks

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// ParseStats reads the statistics that ranks reported; nil for a rank without a report.
func ParseStats(reports []json.RawMessage) ([]Values, error) {
	all := make([]Values, len(reports))
	for rank, text := range reports {
		if text == nil {
			continue
		}
		if err := json.Unmarshal(text, &all[rank]); err != nil {
			return nil, fmt.Errorf("statistics of rank %d: %w", rank, err)
		}
	}
	return all, nil
}

// WriteStats prints the sum, minimum and maximum of each statistic of the ranks. It omits
// statistics that are zero for all ranks.
func WriteStats(w io.Writer, all []Values) error {
	var present []Values
	for _, s := range all {
		if s != nil {
			present = append(present, s)
		}
	}
	const line = "%-34s %12s %12s %12s\n"
	fmt.Fprintf(w, line, fmt.Sprintf("%d of %s", len(present), textfmt.Plural(len(all), "rank")), "sum", "min", "max")
	for _, t := range Totals(present) {
		if _, err := fmt.Fprintf(w, line, t.Name, t.Shown(), t.Show(t.Min), t.Show(t.Max)); err != nil {
			return err
		}
	}
	return nil
}

// WriteTable prints the bytes per rank of an experiment: a line for each pattern and
// design, a column for each number of ranks.
func (e *Experiment) WriteTable(w io.Writer) {
	type line struct{ pattern, design string }
	var lines []line
	var counts []int
	cells := map[line]map[int]string{}
	for i := range e.Points {
		p := &e.Points[i]
		l := line{p.Workload, p.Design}
		if cells[l] == nil {
			cells[l] = map[int]string{}
			lines = append(lines, l)
		}
		if !slices.Contains(counts, p.Ranks) {
			counts = append(counts, p.Ranks)
		}
		cells[l][p.Ranks] = textfmt.Bytes(uint64(p.Bytes.Mean))
	}
	slices.Sort(counts)
	fmt.Fprintf(w, "%-26s", e.Name+": mean of a rank")
	for _, n := range counts {
		fmt.Fprintf(w, " %9d", n)
	}
	fmt.Fprintln(w)
	last := ""
	for _, l := range lines {
		name := l.pattern
		if name == last {
			name = ""
		}
		last = l.pattern
		fmt.Fprintf(w, "  %-10s %-13s", name, l.design)
		for _, n := range counts {
			fmt.Fprintf(w, " %9s", cells[l][n])
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
