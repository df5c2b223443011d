package console

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/printable"
	"github.com/fabrictest/fabrictest/report/conform"
)

// deviations prints the results with a deviation on record.
func (d *Verdicts) deviations(b *strings.Builder, run *conform.Run) {
	all := run.Deviating()
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\nNot met, for reasons on record: %s\n", printable.Line(run.DeviationWords()))
	for i, r := range all {
		if i == maxBad {
			fmt.Fprintf(b, "  and %d more, in the report.\n", len(all)-maxBad)
			return
		}
		fmt.Fprintf(b, "  %s %s, %s\n", d.tint(conform.Deviates, fmt.Sprintf("%-6s", printable.Line(r.Level))), d.bold(printable.Line(r.ID)), printable.Line(r.Device.Label()))
		if r.Want != "" || r.Got != "" {
			fmt.Fprintf(b, "         want  %s\n         got   %s\n", printable.Line(r.Want), printable.Line(r.Got))
		}
		b.WriteString(wrap("         ", printable.Line(r.Deviation)))
	}
}

// unasked prints the reasons of unsupported cases, one per line.
func (d *Verdicts) unasked(b *strings.Builder, run *conform.Run) {
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

// wrap breaks a text into indented lines.
func wrap(indent, text string) string {
	const room = 100
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		switch {
		case line == indent:
			line += word
		case width(line)+1+width(word) > room:
			b.WriteString(line + "\n")
			line = indent + word
		default:
			line += " " + word
		}
	}
	return b.String() + line + "\n"
}
