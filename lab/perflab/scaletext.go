package perflab

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// WriteTable writes a table for each curve, with its exponents below.
func (r *ScaleResult) WriteTable(w io.Writer) error {
	var b strings.Builder
	for _, c := range r.Curves {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Title)
		tab := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintf(tab, "%s\tCPU time\tmemory\tpackets\tpackets/s\tvirtual time\t\n", c.axis())
		for _, p := range c.Points {
			fmt.Fprintf(tab, "%d\t%s\t%s\t%d\t%s\t%s\t\n", p.Size, cli.Duration(p.CPU), cli.Bytes(p.Memory), p.Packets,
				strings.TrimSpace(cli.SI(p.packetsPerS(), "")), cli.Duration(p.Virtual))
		}
		tab.Flush()
		fmt.Fprintf(&b, "CPU time: %s. Memory: %s.\n", c.CPUFit, c.MemoryFit)
		if c.LeftOut != "" {
			fmt.Fprintf(&b, "Left out: %s.\n", c.LeftOut)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "Measured with one processor of: %s.\n", r.Run.Machine)
	_, err := io.WriteString(w, b.String())
	return err
}
