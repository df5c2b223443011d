package perflab

import (
	"fmt"
	"io"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report"
)

// WritePage writes a page with a chart of CPU time and one of memory for each curve, with the fitted
// power laws, and a table of its points.
func (r *ScaleResult) WritePage(w io.Writer) error {
	page := report.Curves{
		Headline: "CPU time and memory of simulations by their size",
		Note: "All axes are logarithmic, so that a power law is a straight line. " +
			"The residual is the root mean square of the relative differences from it. Memory is the growth of the resident memory.",
		Facts: [][2]string{
			{"Measured by", r.Run.Tool}, {"Machine", r.Run.Machine + ", one of them used"}, {"Started", r.Run.Started.Format("2006-01-02 15:04 MST")},
		},
	}
	for _, c := range r.Curves {
		g := report.CurveGroup{
			Title: c.Name + ": " + c.Title, Columns: []string{c.axis(), "CPU time", "memory", "packets", "packets a second", "virtual time"},
			Charts: []report.Chart{
				c.chart("CPU time", "ms", c.CPUFit, func(p *ScalePoint) float64 { return p.CPU.Seconds() }, 1e-3),
				c.chart("Memory", "MiB", c.MemoryFit, func(p *ScalePoint) float64 { return float64(p.Memory) }, 1<<20),
			},
		}
		for _, p := range c.Points {
			g.Rows = append(g.Rows, []string{
				fmt.Sprint(p.Size), cli.Duration(p.CPU), cli.Bytes(p.Memory), fmt.Sprint(p.Packets),
				strings.TrimSpace(cli.SI(p.packetsPerS(), "")), cli.Duration(p.Virtual),
			})
		}
		if c.LeftOut != "" {
			g.Title += " (left out: " + c.LeftOut + ")"
		}
		if len(c.Points) == 0 {
			g.Charts = nil // they would have no axis
		}
		page.Groups = append(page.Groups, g)
	}
	return report.WriteCurves(w, &page)
}

// chart returns a chart of a value of each point, divided by scale, and of its power law.
func (c *ScaleCurve) chart(title, unit string, f Fit, value func(*ScalePoint) float64, scale float64) report.Chart {
	measured, law := report.ChartLine{Name: "measured"}, report.ChartLine{Name: f.String()}
	for i := range c.Points {
		p := &c.Points[i]
		x := float64(p.Size)
		measured.Points = append(measured.Points, report.ChartPoint{X: x, Y: value(p) / scale})
		law.Points = append(law.Points, report.ChartPoint{X: x, Y: f.At(x) / scale})
	}
	chart := report.Chart{Title: title, Unit: unit, XName: c.axis(), Lines: []report.ChartLine{measured}}
	if c.axis() == "bytes" {
		chart.XUnit = "B"
	}
	if f.Points >= minFitPoints {
		chart.Lines = append(chart.Lines, law)
	}
	return chart
}
