package conform

import (
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// Columns of the table of measurements.
const (
	nameRoom  = 30
	valueRoom = 11
)

// measured prints a line per measurement with its description.
func (d *Display) measured(b *strings.Builder, run *Run) {
	for i := range run.Devices {
		dev := &run.Devices[i]
		if len(dev.Measured) == 0 {
			continue
		}
		name := textfmt.PrintableLine(dev.Label())
		fmt.Fprintf(b, "%s%*s%*s%*s%9s\n", d.bold(name)+kit.Pad("", nameRoom-kit.TextWidth(name)), valueRoom, "median", valueRoom, "least", valueRoom, "most", "samples")
		group := ""
		for k := range dev.Measured {
			m := &dev.Measured[k]
			of, _, _ := strings.Cut(m.Name, "/")
			if group != "" && group != of {
				b.WriteString("\n")
			}
			group = of
			line := kit.Pad(kit.Cut("  "+textfmt.PrintableLine(m.Name), nameRoom), nameRoom)
			for _, v := range []float64{m.Median, m.Least, m.Most} {
				line += " " + kit.PadLeft(m.In(v), valueRoom-1)
			}
			about := "  " + textfmt.PrintableLine(m.About)
			if m.Position > 1 {
				about = "" // same as above
			}
			fmt.Fprintf(b, "%s%9d%s\n", line, len(m.Samples), about)
		}
	}
}
