package conform

import (
	"fmt"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// deviations prints the results with a deviation on record.
func (d *Display) deviations(b *strings.Builder, run *Run) {
	all := run.Deviating()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNot met, for reasons on record: %s\n", textfmt.PrintableLine(run.DeviationCounts()))
	for i, r := range all {
		if i == maxPrinted {
			fmt.Fprintf(b, "  and %d more, in the report.\n", len(all)-maxPrinted)
			return
		}
		fmt.Fprintf(b, "  %s %s, %s\n", d.tint(Deviates, fmt.Sprintf("%-6s", textfmt.PrintableLine(r.Level))), d.bold(textfmt.PrintableLine(r.ID)), textfmt.PrintableLine(r.Device.Label()))
		if r.Want != "" || r.Got != "" {
			fmt.Fprintf(b, "         want  %s\n         got   %s\n", textfmt.PrintableLine(r.Want), textfmt.PrintableLine(r.Got))
		}
		for _, line := range wrap(textfmt.PrintableLine(r.Deviation), 91, math.MaxInt) {
			b.WriteString("         " + line + "\n")
		}
	}
}

// unasked prints the reasons of unsupported cases, one per line.
func (d *Display) unasked(b *strings.Builder, run *Run) {
	first := true
	for i := range run.Devices {
		dev := &run.Devices[i]
		for _, u := range dev.Unasked() {
			if first {
				b.WriteString("\nNot asked, and why\n")
				first = false
			}
			line := fmt.Sprintf("  %-9s %4d  %s", textfmt.PrintableLine(dev.Label()), len(u.Cases), textfmt.PrintableLine(u.Why))
			if len(u.Cases) == 1 {
				line += " (" + textfmt.PrintableLine(u.Cases[0]) + ")"
			}
			b.WriteString(line + "\n")
		}
	}
}
