package conform

import (
	"fmt"
	"math"
	"strings"

	"github.com/fabrictest/fabrictest/internal/printable"
)

// deviations prints the results with a deviation on record.
func (d *Display) deviations(b *strings.Builder, run *Run) {
	all := run.Deviating()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNot met, for reasons on record: %s\n", printable.Line(run.DeviationWords()))
	for i, r := range all {
		if i == maxPrinted {
			fmt.Fprintf(b, "  and %d more, in the report.\n", len(all)-maxPrinted)
			return
		}
		fmt.Fprintf(b, "  %s %s, %s\n", d.tint(Deviates, fmt.Sprintf("%-6s", printable.Line(r.Level))), d.bold(printable.Line(r.ID)), printable.Line(r.Device.Label()))
		if r.Want != "" || r.Got != "" {
			fmt.Fprintf(b, "         want  %s\n         got   %s\n", printable.Line(r.Want), printable.Line(r.Got))
		}
		for _, line := range wrap(printable.Line(r.Deviation), 91, math.MaxInt) {
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
			line := fmt.Sprintf("  %-9s %4d  %s", printable.Line(dev.Label()), len(u.Cases), printable.Line(u.Why))
			if len(u.Cases) == 1 {
				line += " (" + printable.Line(u.Cases[0]) + ")"
			}
			b.WriteString(line + "\n")
		}
	}
}
