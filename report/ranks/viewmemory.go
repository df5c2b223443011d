package ranks

import (
	"fmt"
	"html/template"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// memoryView is the template's data for memory measurements.
type memoryView struct {
	Headline  string
	Designs   []kit.Key
	Kinds     []kit.Key
	Config    string // configuration of the curves
	Workloads []workloadView
	Thesis    *thesisView
	Survey    *designsView
}

// workloadView has the curves of a workload.
type workloadView struct {
	Title, About string
	Rank0Note    string // the number of ranks from which rank 0 alone is measured
	Lines        template.HTML
	Minis        []miniView
	Ranks        []int
	Rows         []designRow
}

// miniView is a small chart of the memory of a design, with the kinds of memory.
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
	Rank0Only          bool
}

// newMemoryView returns the curves of memory by number of ranks (the experiment curves), and the
// comparisons with published figures (thesis and survey), for the experiments that the run has.
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
		v.Config = configText(e.Config)
		for _, name := range workloadOrder {
			if p := newWorkloadView(e, name); p != nil {
				v.Workloads = append(v.Workloads, *p)
			}
		}
	}
	v.Thesis, v.Survey = newThesisView(r.experiment(thesis)), newDesignsView(r.experiment(survey))
	return v
}

// configText describes the packets, receives and RDMA rings of the transport between ranks in an
// experiment. c is the "config" of the experiment.
func configText(c Values) string {
	text := fmt.Sprintf("Packets of %s; %d receives per connection", cli.Bytes(c.Count("packet")), c.Count("receives"))
	if n := c.Count("shared_receives"); n > 0 {
		text += fmt.Sprintf(", or %d shared receives", n)
	}
	if n := c.Count("ring.slots"); n > 0 {
		text += fmt.Sprintf("; rings of %d packets of %s, for peers that have sent %d packets", n, cli.Bytes(c.Count("ring.slot")), c.Count("ring.after"))
	}
	return text + "."
}

// designClass returns the CSS class of designs[i].
func designClass(i int) string { return fmt.Sprintf("k%d", i) }

// curve returns the points of a workload, by number of ranks, with a design of the transports
// between hosts, such as "srq" or "ring-sendrecv". Points of the workload star, which measures
// rank 0 alone, continue those of all-to-all beyond the number of ranks that a host can run.
func (e *Experiment) curve(workload, design string) (points []*Point) {
	workloads := []string{workload}
	if workload == allToAll {
		workloads = append(workloads, star)
	}
	maxRanks := 0 // of the points so far
	for _, name := range workloads {
		for i := range e.Points {
			if p := &e.Points[i]; p.Workload == name && p.Design == design && p.Ranks > maxRanks {
				points = append(points, p)
			}
		}
		slices.SortFunc(points, func(a, b *Point) int { return a.Ranks - b.Ranks })
		if len(points) > 0 {
			maxRanks = points[len(points)-1].Ranks
		}
	}
	return points
}

// newWorkloadView returns the table and the charts of a workload. They show the memory per rank by
// number of ranks and by design (how the runtime connects ranks): Lines is a chart with a line for
// each design, Minis has a small chart of each. It returns nil if the workload was not measured.
func newWorkloadView(e *Experiment, workload string) *workloadView {
	v := &workloadView{Title: workloadTitles[workload][0], About: workloadTitles[workload][1]}
	var lines []series
	for i, d := range designs {
		points := e.curve(workload, d)
		if len(points) == 0 {
			continue
		}
		lines = append(lines, series{designClass(i), d, points})
		last := points[len(points)-1]
		v.Minis = append(v.Minis, miniView{
			Design: d, Last: fmt.Sprintf("%s at %d", cli.Bytes(uint64(last.Bytes.Mean)), last.Ranks), Drawing: drawKinds(d, points),
		})
		for _, p := range points {
			if !slices.Contains(v.Ranks, p.Ranks) {
				v.Ranks = append(v.Ranks, p.Ranks)
			}
			if p.Rank0Only && v.Rank0Note == "" {
				v.Rank0Note = fmt.Sprintf("Hollow points, from %d ranks on: only rank 0 is connected to all others, because the connections of all ranks do not fit into the memory of one machine. The memory of rank 0 is the same as in an all-to-all.", p.Ranks)
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
					c = designCell{cli.Bytes(uint64(p.Bytes.Mean)), fmt.Sprintf("%.4g", p.Connections.Mean), p.Rank0Only}
				}
			}
			row.Cells = append(row.Cells, c)
		}
		v.Rows = append(v.Rows, row)
	}
	return v
}

// drawKinds draws a design's memory per rank: a column for each point, with a segment for each
// kind of memory. Columns that measure rank 0 alone are faint.
func drawKinds(design string, points []*Point) template.HTML {
	columns := make([]kit.Column, 0, len(points))
	every := (len(points) + 4) / 5 // label at most five columns
	for i, p := range points {
		column := kit.Column{Title: fmt.Sprintf("%d ranks: %s", p.Ranks, cli.Bytes(uint64(p.Bytes.Mean))), Faint: p.Rank0Only}
		for m, kind := range p.Kinds {
			column.Parts = append(column.Parts, kit.Segment{Class: kindClass(m), Value: kind.Bytes.Mean})
			if kind.Bytes.Mean > 0 {
				column.Title += fmt.Sprintf("\n%s: %s", kind.Name, cli.Bytes(uint64(kind.Bytes.Mean)))
			}
		}
		if i%every == 0 {
			column.Label = fmt.Sprint(p.Ranks)
		}
		columns = append(columns, column)
	}
	return kit.ColumnChart{Width: 232, Height: 104, Left: 52, Label: "memory with " + design, Ticks: 3}.Draw(columns)
}
