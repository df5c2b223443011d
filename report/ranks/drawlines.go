package ranks

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// series is the curve of the design name. class is its CSS class.
type series struct {
	class, name string
	points      []*Point
}

// sharedReceiveLimit is the maximum of bytes per rank with an SRQ that Sur 2006 published.
const sharedReceiveLimit = 5e6

// drawLines returns an SVG chart of the mean memory per rank of each series by number of ranks, on
// logarithmic scales. ranks are the sorted values of the x-axis. Points that measure rank 0 alone
// look different. A horizontal line marks sharedReceiveLimit, the largest memory in Sur 2006.
func drawLines(all []series, ranks []int) template.HTML {
	values := []float64{sharedReceiveLimit * 1.01} // the scale must reach above the line
	c := kit.LineChart{
		Left: 62, Width: 440, Height: 320, Label: "bytes a rank against ranks", XLabel: "ranks", LogX: true,
		Y:      func(start, length float64) kit.Scale { return kit.Decades(values, start, length) },
		YText:  func(v float64) string { return strings.ReplaceAll(cli.SI(v, "B"), ".0", "") }, // as "10 MB"
		Limits: []kit.Limit{{Y: sharedReceiveLimit, Text: cli.SI(sharedReceiveLimit, "B")}},
	}
	for _, n := range ranks {
		c.Ticks = append(c.Ticks, kit.XTick{X: float64(n), Text: fmt.Sprint(n)})
	}
	for _, s := range all {
		line := kit.Line{Class: s.class}
		for _, p := range s.points {
			values = append(values, p.Bytes.Mean)
			line.Points = append(line.Points, kit.LinePoint{
				X: float64(p.Ranks), Y: p.Bytes.Mean, Hollow: p.Rank0Only,
				Title: fmt.Sprintf("%s, %d ranks: %s a rank, %.4g connections, %.4g rings", s.name, p.Ranks, cli.Bytes(uint64(p.Bytes.Mean)), p.Connections.Mean, p.Rings.Mean),
			})
		}
		c.Lines = append(c.Lines, line)
	}
	return c.Draw()
}

// drawByRank draws a column for the memory of each rank, divided by kind; nothing for a single
// rank. stats has the statistics by rank; nil for a rank without. With more than 128 ranks, a
// column stands for perColumn successive ranks and shows the one with the most memory.
func drawByRank(stats []Values) (drawing template.HTML, perColumn int) {
	const maxColumns = 128
	if len(stats) < 2 {
		return "", 0
	}
	perColumn = (len(stats) + maxColumns - 1) / maxColumns
	var columns []kit.Column
	for first := 0; first < len(stats); first += perColumn {
		group := stats[first:min(first+perColumn, len(stats))]
		column, maxBytes := kit.Column{}, -1
		for i, s := range group {
			if s == nil {
				continue
			}
			if kinds, n := memoryOf(s); int(n) > maxBytes {
				maxBytes = int(n)
				column = kit.Column{Title: fmt.Sprintf("rank %d: %s", first+i, cli.Bytes(n))}
				for kind, size := range kinds {
					column.Parts = append(column.Parts, kit.Segment{Class: kindClass(kind), Value: float64(size)})
				}
			}
		}
		columns = append(columns, column)
	}
	const maxLabels = 16
	for i := range columns {
		if every := (len(columns) + maxLabels - 1) / maxLabels; i%every == 0 {
			columns[i].Label = fmt.Sprint(i * perColumn)
		}
	}
	return kit.ColumnChart{Width: 920, Height: 180, Left: 62, Label: "memory of each rank", Ticks: 4}.Draw(columns), perColumn
}
