package record

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Counts returns the number of rows by verdict.
func (c *Comparison) Counts() map[Verdict]int {
	n := map[Verdict]int{}
	for i := range c.Rows {
		n[c.Rows[i].Verdict]++
	}
	return n
}

// verdictOrder is the order of verdicts in texts: what matters most is first.
var verdictOrder = []Verdict{Worse, Better, Inconclusive, Same, Missing}

// WriteTable writes the rows as a text table, and a line with the number of each verdict.
func (c *Comparison) WriteTable(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "series\tbefore\tafter\tchange\t95 % interval\tp\tsamples\t")
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Verdict == Missing {
			fmt.Fprintf(tab, "%s\t%s\t%s\t\t\t\t%d, %d\t%s\n", r.Name, r.A.text(r.Unit), r.B.text(r.Unit), r.A.N, r.B.N, r.Verdict)
			continue
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%+.1f %%\t%+.1f to %+.1f %%\t%s\t%d, %d\t%s\n",
			r.Name, r.A.text(r.Unit), r.B.text(r.Unit), 100*r.Change, 100*r.Low, 100*r.High, FormatP(r.P), r.A.N, r.B.N, r.Verdict)
	}
	tab.Flush()
	var counts []string
	for _, v := range verdictOrder {
		if n := c.Counts()[v]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, v))
		}
	}
	fmt.Fprintf(&b, "\n%s: %s.\n", cli.Plural(len(c.Rows), "comparison"), strings.Join(counts, ", "))
	if few := c.tooFew(); few > 0 {
		fmt.Fprintf(&b, "%s with less than %d samples: repeat the measurement that often in each run.\n", cli.Plural(few, "series"), minSamples)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// FormatP formats a probability with three digits.
func FormatP(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// tooFew returns the number of rows with too few samples for a verdict.
func (c *Comparison) tooFew() (n int) {
	for i := range c.Rows {
		if r := &c.Rows[i]; r.Verdict != Missing && min(r.A.N, r.B.N) < minSamples {
			n++
		}
	}
	return n
}

// text returns the median with its unit, or "" without samples.
func (s Summary) text(u Unit) string {
	if s.N == 0 {
		return ""
	}
	return u.Format(s.Median)
}

// Format returns a value with its unit: 1.79 µs, 48.5 GB/s, 7.4 M/s.
func (u Unit) Format(v float64) string {
	switch u {
	case Seconds:
		return cli.Duration(time.Duration(v * 1e9))
	case Messages:
		return strings.TrimSpace(cli.SI(v, "")) + "/s"
	case Size:
		return cli.Bytes(uint64(v))
	case Bytes:
	}
	return cli.SI(v, string(u))
}

// WriteHistory writes a line for each change.
func WriteHistory(w io.Writer, runs []*Run, changes []Change) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, c := range changes {
		verdict := Worse
		if c.Better {
			verdict = Better
		}
		fmt.Fprintf(tab, "%s\trun %d, %s\t%s\t-> %s\t%+.1f %%\t%s\n", c.Name, c.Run+1, stamp(runs[c.Run].Started),
			c.Unit.Format(c.Before), c.Unit.Format(c.After), 100*relative(c.Before, c.After), verdict)
	}
	tab.Flush()
	fmt.Fprintf(&b, "%s in %s.\n", cli.Plural(len(changes), "change"), cli.Plural(len(runs), "run"))
	_, err := io.WriteString(w, b.String())
	return err
}

// stamp formats the start of a run.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "undated"
	}
	return t.UTC().Format("2006-01-02 15:04")
}
