package experiment

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/perf/record"
)

// Check compares a recorded run with a platform or with an earlier run.
type Check struct {
	Against string       `json:"against"`
	Series  []CheckedRow `json:"series"`
	// Skipped are the series without an expectation.
	Skipped []string `json:"skipped,omitempty"`
}

// CheckedRow is a series with its expected value.
type CheckedRow struct {
	Name     string      `json:"name"`
	Unit     record.Unit `json:"unit"`
	Expected float64     `json:"expected"`
	Measured float64     `json:"measured"` // median
	Change   float64     `json:"change"`   // relative
	Band     float64     `json:"band"`     // the change that is allowed, relative
	// Out reports whether the series has left the band: with an earlier run, only if the difference
	// is significant, too.
	Out bool `json:"out"`
}

// CheckPlatform compares a run with the predictions of a platform. A series may differ by band, or
// by the noise of its samples (record.Series.Noise) if that is larger.
func CheckPlatform(p *nics.Platform, run *record.Run, band float64) (*Check, error) {
	c := &Check{Against: "platform " + p.Name}
	for i := range run.Series {
		s := &run.Series[i]
		if !Predicts(s) {
			c.Skipped = append(c.Skipped, s.Name)
			continue
		}
		expected, err := Predict(p, s)
		if err != nil {
			return nil, err
		}
		row := CheckedRow{Name: s.Name, Unit: s.Unit, Expected: expected, Measured: s.Median(), Band: max(band, s.Noise())}
		row.Change = row.Measured/expected - 1
		row.Out = math.Abs(row.Change) > row.Band
		c.Series = append(c.Series, row)
	}
	if len(c.Series) == 0 {
		return nil, cli.Errorf("the simulation has none of the %d series of the run", len(run.Series))
	}
	return c, nil
}

// CheckRun compares a run with an earlier one. A series may differ by band, or by the noise of its
// samples (record.Series.Noise) in either run if that is larger.
func CheckRun(name string, earlier, run *record.Run, band float64) (*Check, error) {
	compared, err := record.Compare(earlier, run, record.Options{Floor: band})
	if err != nil {
		return nil, err
	}
	c := &Check{Against: name}
	for i := range compared.Rows {
		r := &compared.Rows[i]
		if r.Verdict == record.Missing {
			c.Skipped = append(c.Skipped, r.Name)
			continue
		}
		c.Series = append(c.Series, CheckedRow{
			Name: r.Name, Unit: r.Unit, Expected: r.A.Median, Measured: r.B.Median, Change: r.Change, Band: r.Floor,
			Out: r.Verdict == record.Better || r.Verdict == record.Worse,
		})
	}
	return c, nil
}

// CheckOptions are those of a check.
type CheckOptions struct {
	Against string  // a platform or a run
	Percent float64 // that a series may differ; 0 means 15 for a platform, and 2 for a run
}

// Run compares a recorded run, in the file called name, with o.Against: an earlier run if o.Against
// is a file with a run, else a platform.
func (o *CheckOptions) Run(name string) (*Check, error) {
	const runPercent, platformPercent = 2, 15 // by default
	if !(o.Percent >= 0 && o.Percent < 100) {
		return nil, cli.Errorf("--band %v: give 0 to 100", o.Percent)
	}
	run, err := record.Load(name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(o.Against); err == nil && !strings.HasSuffix(o.Against, ".yaml") {
		earlier, err := record.Load(o.Against)
		if err != nil {
			return nil, err
		}
		return CheckRun(o.Against, earlier, run, cmp.Or(o.Percent, runPercent)/100)
	}
	p, err := nics.LoadPlatform(o.Against)
	if err != nil {
		return nil, err
	}
	return CheckPlatform(p, run, cmp.Or(o.Percent, platformPercent)/100)
}

// Outside returns the series that have left their Band, the change that is allowed. Those that
// changed most are first.
func (c *Check) Outside() (out []CheckedRow) {
	for _, r := range c.Series {
		if r.Out {
			out = append(out, r)
		}
	}
	slices.SortStableFunc(out, func(a, b CheckedRow) int { return cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)) })
	return out
}

// WriteText writes the series, and then where those outside of the band lie: their benchmarks, and
// the values of parameters with which all series are outside.
func (c *Check) WriteText(w io.Writer) error {
	var b strings.Builder
	tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tab, "series\texpected\tmeasured\tchange\tband\t\n")
	for _, r := range c.Series {
		verdict := "within"
		if r.Out {
			verdict = "OUTSIDE"
		}
		fmt.Fprintf(tab, "%s\t%s\t%s\t%+.1f %%\t%.1f %%\t%s\n", r.Name, r.Unit.Format(r.Expected), r.Unit.Format(r.Measured), 100*r.Change, 100*r.Band, verdict)
	}
	tab.Flush()
	out := c.Outside()
	fmt.Fprintf(&b, "\nagainst %s: %d of %d series outside of the band", c.Against, len(out), len(c.Series))
	if len(out) > 0 {
		fmt.Fprintf(&b, ", most %s by %+.1f %%", out[0].Name, 100*out[0].Change)
	}
	b.WriteString(".\n")
	for _, line := range c.where() {
		fmt.Fprintln(&b, line)
	}
	if len(c.Skipped) > 0 {
		fmt.Fprintf(&b, "not compared: %s\n", strings.Join(c.Skipped, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// where returns a line for each benchmark with series outside of their band (the change that is
// allowed, see CheckedRow), and for each value of a parameter, such as a size or a number of
// connections, with which all series of the benchmark are outside.
func (c *Check) where() (lines []string) {
	total, out := map[string]int{}, map[string]int{}
	var order []string
	for _, r := range c.Series {
		parts := strings.Split(r.Name, "/")
		for i, part := range parts {
			key := part
			if i > 0 {
				key = parts[0] + " with " + part
			}
			if total[key] == 0 {
				order = append(order, key)
			}
			total[key]++
			if r.Out {
				out[key]++
			}
		}
	}
	for _, key := range order {
		if n := out[key]; n > 0 && (n == total[key] || !strings.Contains(key, " with ")) {
			lines = append(lines, fmt.Sprintf("  %s: %d of %d outside", key, n, total[key]))
		}
	}
	return lines
}
