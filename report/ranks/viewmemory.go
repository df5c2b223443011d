package ranks

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// memoryView is the template's data for memory measurements.
type memoryView struct {
	Headline string
	Designs  []kit.Key
	Kinds    []kit.Key
	Config   string // configuration of the curves
	Patterns []patternView
	Thesis   *thesisView
	Survey   *surveyView
}

// patternView has the curves of a pattern.
type patternView struct {
	Title, About string
	One          string // number of ranks from which one rank is measured
	Lines        template.HTML
	Minis        []miniView
	Ranks        []int
	Rows         []designRow
}

// miniView is the memory of a design by kind.
type miniView struct {
	Design  string
	Last    string // total at the most ranks
	Drawing template.HTML
}

type designRow struct {
	Design string
	Cells  []designCell
}

type designCell struct {
	Bytes, Connections string
	One                bool
}

func newMemoryView(r *Run) *memoryView {
	v := &memoryView{Headline: "Communication memory of ranks"}
	for i, d := range designs {
		v.Designs = append(v.Designs, kit.Key{Class: designClass(i), Name: d})
	}
	for k, name := range memoryKinds {
		v.Kinds = append(v.Kinds, kit.Key{Class: kindClass(k), Name: name})
	}
	if e := r.experiment(curves); e != nil {
		least, most := 0, 0
		for _, p := range e.Points {
			if least == 0 || p.Ranks < least {
				least = p.Ranks
			}
			most = max(most, p.Ranks)
		}
		v.Headline = fmt.Sprintf("Communication memory of a rank, with %d to %d ranks", least, most)
		v.Config = equipment(e.Config)
		for _, name := range patternOrder {
			if p := newPattern(e, name); p != nil {
				v.Patterns = append(v.Patterns, *p)
			}
		}
	}
	v.Thesis, v.Survey = newThesis(r.experiment(thesis)), newSurvey(r.experiment(survey))
	return v
}

// equipment describes the configuration of the ranks.
func equipment(c Values) string {
	text := fmt.Sprintf("Packets of %s; %d receives of each connection that has its own", textfmt.Bytes(c.Count("packet")), c.Count("receives"))
	if n := c.Count("shared_receives"); n > 0 {
		text += fmt.Sprintf(", or %d that all share", n)
	}
	if n := c.Count("ring.slots"); n > 0 {
		text += fmt.Sprintf("; rings of %d packets of %s, for peers that %d packets have come from", n, textfmt.Bytes(c.Count("ring.slot")), c.Count("ring.after"))
	}
	return text + "."
}

func designClass(i int) string { return fmt.Sprintf("k%d", i) }

// curve returns the points of a design, by number of ranks. All-to-all continues with one
// measured rank where a host cannot run all of them.
func (e *Experiment) curve(pattern string, design string) (points []*Point) {
	last := 0
	for _, name := range []string{pattern, continued} {
		if name == continued && pattern != everybody {
			break
		}
		for i := range e.Points {
			if p := &e.Points[i]; p.Workload == name && p.Design == design && p.Ranks > last {
				points = append(points, p)
			}
		}
		slices.SortFunc(points, func(a, b *Point) int { return a.Ranks - b.Ranks })
		if len(points) > 0 {
			last = points[len(points)-1].Ranks
		}
	}
	return points
}

func newPattern(e *Experiment, name string) *patternView {
	v := &patternView{Title: patternTitles[name][0], About: patternTitles[name][1]}
	var lines []series
	for i, d := range designs {
		points := e.curve(name, d)
		if len(points) == 0 {
			continue
		}
		lines = append(lines, series{designClass(i), d, points})
		last := points[len(points)-1]
		v.Minis = append(v.Minis, miniView{
			Design: d, Last: fmt.Sprintf("%s at %d", textfmt.Bytes(uint64(last.Bytes.Mean)), last.Ranks), Drawing: drawKinds(d, points),
		})
		for _, p := range points {
			if !slices.Contains(v.Ranks, p.Ranks) {
				v.Ranks = append(v.Ranks, p.Ranks)
			}
			if p.Rank0Only && v.One == "" {
				v.One = fmt.Sprintf("From %d ranks on, hollow: rank 0 alone has all others as partners, and these only it. A million connections would not fit into this machine; one rank's do, and take as much as they would among all.", p.Ranks)
			}
		}
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(v.Ranks)
	v.Lines = drawLines(lines, v.Ranks)
	for _, s := range lines {
		row := designRow{Design: s.name}
		for _, n := range v.Ranks {
			c := designCell{}
			for _, p := range s.points {
				if p.Ranks == n {
					c = designCell{textfmt.Bytes(uint64(p.Bytes.Mean)), fmt.Sprintf("%.4g", p.Connections.Mean), p.Rank0Only}
				}
			}
			row.Cells = append(row.Cells, c)
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// drawKinds draws the memory of a design by kind, a column per number of ranks.
func drawKinds(design string, points []*Point) template.HTML {
	columns := make([]kit.Column, 0, len(points))
	every := (len(points) + 4) / 5 // show every n-th label
	for i, p := range points {
		k := kit.Column{Title: fmt.Sprintf("%d ranks: %s", p.Ranks, textfmt.Bytes(uint64(p.Bytes.Mean))), Faint: p.Rank0Only}
		for m, kind := range p.Kinds {
			k.Parts = append(k.Parts, kit.Segment{Class: kindClass(m), Value: kind.Bytes.Mean})
			if kind.Bytes.Mean > 0 {
				k.Title += fmt.Sprintf("\n%s: %s", kind.Name, textfmt.Bytes(uint64(kind.Bytes.Mean)))
			}
		}
		if i%every == 0 {
			k.Label = fmt.Sprint(p.Ranks)
		}
		columns = append(columns, k)
	}
	return kit.ColumnChart{Width: 232, Height: 104, Left: 52, Label: "memory with " + design, Ticks: 3}.Draw(columns)
}
