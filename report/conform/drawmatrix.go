package conform

import (
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// matrixView shows which cases detect which defects of a device.
type matrixView struct {
	Device        string
	Caught, Total int  // defects
	Full          bool // all cases were run with all defects
	Omitted       int  // defects of cases that were not selected
	SVG           template.HTML
	Rows          []*checkView
}

// checkView is a defect with the cases that detect it.
type checkView struct {
	Defect, Imitates, Does string
	State                  string // caught, uncaught, excused
	Why                    string
	Caught                 []string
	More                   int
}

// maxListedCases limits the cases that are listed by name in a row of a table.
const maxListedCases = 12

// newMatrix returns the table of a device's defects and of the cases that detect them; nil if cases
// were not run with defects. If only some cases were selected, it omits the defects that none of
// them detects or is expected to. The table is Full if each defect was tried with all cases or with
// none.
func newMatrix(d *Device, someCasesOnly bool) *matrixView {
	if len(d.DefectChecks) == 0 {
		return nil
	}
	v := &matrixView{Device: d.Label(), Total: len(d.DefectChecks), Full: true}
	shown := *d
	shown.DefectChecks = nil
	for i := range d.DefectChecks {
		m := &d.DefectChecks[i]
		if someCasesOnly && len(m.Expects) == 0 && len(m.Caught) == 0 {
			v.Omitted++
			continue
		}
		shown.DefectChecks = append(shown.DefectChecks, *m)
		row := &checkView{Defect: m.Defect, Imitates: m.Imitates, Does: m.Does, State: checkState(m), Why: m.Excused, Caught: m.Caught}
		if len(m.Caught) > 0 {
			v.Caught++
		}
		if len(row.Caught) > maxListedCases {
			row.Caught, row.More = row.Caught[:maxListedCases], len(row.Caught)-maxListedCases
		}
		v.Full = v.Full && (m.Tried >= len(d.Results) || m.Tried == 0) // Tried: the number of cases run with the defect
		v.Rows = append(v.Rows, row)
	}
	v.SVG = drawMatrix(&shown)
	return v
}

// checkState returns the CSS class of a defect: caught, excused or uncaught.
func checkState(m *DefectCheck) string {
	switch {
	case len(m.Caught) > 0:
		return "caught"
	case m.Excused != "":
		return "excused"
	}
	return "uncaught"
}

// The grid has a row per defect and a column per case, grouped by topic.
const (
	gridLeft  = 208
	gridTop   = 92
	gridRow   = 13
	gridWidth = 818 // approximate width, for whole columns
)

// gridColumn is a case of the grid.
type gridColumn struct {
	id, topic string
}

// drawMatrix draws a grid with a row for each defect and a column for each case, grouped by
// the first two parts of its ID. Cells show which cases detect the defect.
func drawMatrix(d *Device) template.HTML {
	columns := make([]gridColumn, 0, len(d.Results))
	columnOf := make(map[string]int, len(d.Results)) // by case
	for i := range d.Results {
		parts := strings.SplitN(d.Results[i].ID, "/", 3)
		columns = append(columns, gridColumn{d.Results[i].ID, strings.Join(parts[:min(2, len(parts))], "/")})
	}
	first := make(map[string]int) // the first column of a topic, to which sorting moves the others
	for i, c := range columns {
		if _, ok := first[c.topic]; !ok {
			first[c.topic] = i
		}
	}
	slices.SortStableFunc(columns, func(a, b gridColumn) int { return first[a.topic] - first[b.topic] })
	for i, c := range columns {
		columnOf[c.id] = i
	}
	noVerdict := make(map[string]bool) // by case
	for i := range d.Results {
		noVerdict[d.Results[i].ID] = d.Results[i].Verdict == Unsupported
	}
	cell := min(14, max(1.6, gridWidth/float64(max(1, len(columns)))))
	width, height := gridLeft+cell*float64(len(columns))+30, gridTop+gridRow*float64(len(d.DefectChecks))+8
	g := &defectGrid{columns: columns, cell: cell, columnOf: columnOf, noVerdict: noVerdict}
	ids := make([]string, len(columns))
	for i, c := range columns {
		ids[i] = kit.Escape(c.id)
	}
	fmt.Fprintf(g, `<svg class="grid-drawing" viewBox="0 0 %.0f %.0f" style="width:%.0fpx" role="img" aria-label="defects and the cases that notice them" data-cell="%.2f" data-left="%d" data-top="%d" data-row="%d" data-cases="%s">`,
		width, height, width, cell, gridLeft, gridTop, gridRow, strings.Join(ids, " "))
	fmt.Fprintf(g, `<rect class="row" x="%d" y="%d" width="%.1f" height="%d"/>`, gridLeft, gridTop, cell*float64(len(columns)), gridRow*len(d.DefectChecks))
	g.drawTopics(height)
	for y, m := range sortByColumn(d.DefectChecks, columnOf) {
		g.drawDefectCheck(m, float64(gridTop+gridRow*y))
	}
	g.WriteString("</svg>")
	return template.HTML(g.String())
}

// defectGrid is the SVG text of the grid of defects and cases.
type defectGrid struct {
	strings.Builder
	columns   []gridColumn
	columnOf  map[string]int  // index in columns, by case
	cell      float64         // width of a column
	noVerdict map[string]bool // by case
}

// sortByColumn sorts defects by the leftmost column of the cases that detect them as expected, or
// else by the column of the first case of Caught. Undetected defects come first.
func sortByColumn(all []DefectCheck, columnOf map[string]int) []*DefectCheck {
	rows := make([]*DefectCheck, len(all))
	first := make(map[*DefectCheck]int, len(all))
	for i := range all {
		m := &all[i]
		rows[i], first[m] = m, -1
		for _, id := range slices.Concat(m.Expects, m.Caught) {
			column, ok := columnOf[id]
			if !ok || !slices.Contains(m.Caught, id) {
				continue
			}
			if first[m] < 0 || slices.Contains(m.Expects, id) && column < first[m] {
				first[m] = column
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b *DefectCheck) int { return first[a] - first[b] })
	return rows
}

// drawTopics draws a line, down to height, and a label for the columns of each topic, which is the
// first two parts of case IDs. It omits labels that would overlap.
func (g *defectGrid) drawTopics(height float64) {
	columns, cell := g.columns, g.cell
	const room = 11             // width of a slanted label
	lastLabel := -float64(room) // its position
	for i := 0; i < len(columns); {
		j := i
		for j < len(columns) && columns[j].topic == columns[i].topic {
			j++
		}
		x := gridLeft + cell*float64(i)
		fmt.Fprintf(g, `<path class="topic" d="M%.1f %dV%.0f"/>`, x, gridTop-4, height-8)
		mid := x + cell*float64(j-i)/2
		if mid-lastLabel >= room {
			fmt.Fprintf(g, `<text class="topic" transform="translate(%.1f %d) rotate(-60)">%s</text>`, mid+3, gridTop-8, kit.Escape(columns[i].topic))
			lastLabel = mid
		}
		i = j
	}
}

// drawDefectCheck draws the row of a defect, whose top is y: its name, and one SVG path for all
// cells of a CSS class. The class is "hit" for cases that detect the defect as they should, "also"
// for others that detect it, "miss" or "noVerdict" (unsupported) for those that should but do not.
func (g *defectGrid) drawDefectCheck(m *DefectCheck, y float64) {
	state := checkState(m)
	fmt.Fprintf(g, `<g class="m %s">`, state)
	if state != "caught" {
		fmt.Fprintf(g, `<rect class="row" x="%d" y="%.0f" width="%.1f" height="%d"/>`, gridLeft, y, g.cell*float64(len(g.columns)), gridRow-1)
	}
	fmt.Fprintf(g, `<text x="%d" y="%.0f">%s</text>`, gridLeft-8, y+gridRow-3, kit.Escape(m.Defect))
	cells := make(map[string]*strings.Builder)
	mark := func(id, class string) {
		i, ok := g.columnOf[id]
		if !ok {
			return
		}
		if cells[class] == nil {
			cells[class] = new(strings.Builder)
		}
		w := max(g.cell-0.5, 2)
		fmt.Fprintf(cells[class], "M%.1f %.0fh%.1fv%dh-%.1fz", gridLeft+g.cell*float64(i), y, w, gridRow-1, w)
	}
	for _, id := range m.Caught {
		class := "also"
		if slices.Contains(m.Expects, id) {
			class = "hit"
		}
		mark(id, class)
	}
	for _, id := range m.Expects {
		switch {
		case slices.Contains(m.Caught, id):
		case g.noVerdict[id]:
			mark(id, "noVerdict")
		default:
			mark(id, "miss")
		}
	}
	for _, class := range []string{"also", "hit", "noVerdict", "miss"} {
		if cells[class] != nil {
			fmt.Fprintf(g, `<path class="%s" d="%s"/>`, class, cells[class])
		}
	}
	g.WriteString("</g>")
}
