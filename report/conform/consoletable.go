package conform

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// part is a row of the table of verdicts: a document or a section.
type part struct {
	title  string
	counts Counts
	parts  []*part
}

// writeVerdictTable prints the number of cases by verdict for each device, document (a
// specification) and section. A case counts in the section of its first requirement. With several
// devices, only sections with bad verdicts are printed.
func (d *Display) writeVerdictTable(b *strings.Builder, run *Run) {
	counts := run.Counts()
	shown := slices.DeleteFunc(Verdicts(), func(v Verdict) bool { return counts[v] == 0 })
	if len(shown) == 0 {
		return
	}
	slices.Reverse(shown) // the best first
	const titleWidth = 52
	head := kit.Pad("", titleWidth) + fmt.Sprintf("%7s", "cases")
	for _, v := range shown {
		head += fmt.Sprintf("  %11s", v)
	}
	b.WriteString(strings.TrimRight(head, " ") + "\n")
	line := func(indent int, p *part) {
		text := kit.Pad(kit.Cut(strings.Repeat(" ", indent)+cli.PrintableLine(p.title), titleWidth), titleWidth) + fmt.Sprintf("%7d", p.counts.Total())
		for _, v := range shown {
			cell := fmt.Sprintf("  %11d", p.counts[v])
			switch {
			case p.counts[v] == 0:
				cell = fmt.Sprintf("  %11s", "·")
			case v.Bad():
				cell = d.tint(v, cell)
			}
			text += cell
		}
		b.WriteString(text + "\n")
	}
	for i := range run.Devices {
		dev := &run.Devices[i]
		fmt.Fprintln(b, d.bold(cli.PrintableLine(dev.Label())))
		for _, doc := range partsOf(run, dev) {
			line(2, doc)
			for _, s := range doc.parts {
				if len(run.Devices) == 1 || slices.ContainsFunc(Verdicts(), func(v Verdict) bool { return v.Bad() && s.counts[v] > 0 }) {
					line(4, s)
				}
			}
		}
	}
}

// partsOf counts a device's results by document and section, in the order of run.Documents, which
// lists all requirements (rows). A result counts for the first requirement of its case. Documents and
// sections without results are omitted.
func partsOf(run *Run, dev *Device) (docs []*part) {
	sectionOf := make(map[string]*part) // by row
	docOf := make(map[*part]*part)      // by section
	all := make([]*part, 0, len(run.Documents))
	for i := range run.Documents {
		doc := &part{title: run.Documents[i].Title, counts: Counts{}}
		all = append(all, doc)
		for j := range run.Documents[i].Sections {
			s := &run.Documents[i].Sections[j]
			p := &part{title: s.Title, counts: Counts{}}
			doc.parts = append(doc.parts, p)
			docOf[p] = doc
			for k := range s.Rows {
				sectionOf[s.Rows[k].ID] = p
			}
		}
	}
	elsewhere := &part{title: "not in the ledger", counts: Counts{}}
	for i := range dev.Results {
		r := &dev.Results[i]
		p := elsewhere
		if len(r.Rows) > 0 && sectionOf[r.Rows[0]] != nil {
			p = sectionOf[r.Rows[0]]
			docOf[p].counts[r.Verdict]++
		}
		p.counts[r.Verdict]++
	}
	for _, doc := range append(all, elsewhere) {
		if doc.counts.Total() == 0 {
			continue
		}
		doc.parts = slices.DeleteFunc(doc.parts, func(p *part) bool { return p.counts.Total() == 0 })
		docs = append(docs, doc)
	}
	return docs
}

// Columns of the table of measurements.
const (
	nameRoom  = 30
	valueRoom = 11
)

// writeMeasured prints a line per measurement with its description. Measurements that are repeated
// for the loss of each packet of a window (Position) have the same description, which only the first
// line has. An empty line separates groups: measurements whose names have the same part before the
// slash.
func (d *Display) writeMeasured(b *strings.Builder, run *Run) {
	for i := range run.Devices {
		dev := &run.Devices[i]
		if len(dev.Measured) == 0 {
			continue
		}
		name := cli.PrintableLine(dev.Label())
		fmt.Fprintf(b, "%s%*s%*s%*s%9s\n", d.bold(name)+kit.Pad("", nameRoom-kit.TextWidth(name)), valueRoom, "median", valueRoom, "least", valueRoom, "most", "samples")
		group := ""
		for k := range dev.Measured {
			m := &dev.Measured[k]
			newGroup, _, _ := strings.Cut(m.Name, "/")
			if group != "" && group != newGroup {
				b.WriteString("\n")
			}
			group = newGroup
			line := kit.Pad(kit.Cut("  "+cli.PrintableLine(m.Name), nameRoom), nameRoom)
			for _, v := range []float64{m.Median, m.Least, m.Most} {
				line += " " + kit.PadLeft(m.In(v), valueRoom-1)
			}
			about := "  " + cli.PrintableLine(m.About)
			if m.Position > 1 {
				about = "" // as of the first
			}
			fmt.Fprintf(b, "%s%9d%s\n", line, len(m.Samples), about)
		}
	}
}
