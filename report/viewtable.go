package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// table is the template's data for a table. It collapses rows after the first few, and
// omits rows after a limit; result.json has them all.
type table struct {
	Columns []column
	Rows    []tableRow
	Folded  []tableRow
	Notes   []string
}

type column struct {
	Name   string
	Number bool
}

// newTable returns an empty table with columns of these names. A "#" before a name marks a column
// of numbers, and is not shown.
func newTable(names ...string) *table {
	t := &table{}
	for _, n := range names {
		name, number := strings.CutPrefix(n, "#")
		t.Columns = append(t.Columns, column{name, number})
	}
	return t
}

type tableRow struct {
	Cells []cell
	Class string
}

// cell is a text with its class: n for a number, z for a zero.
type cell struct{ Text, Class string }

// add adds a row with a CSS class and the texts of its cells, one for each column.
func (t *table) add(class string, texts ...string) {
	row := tableRow{Class: class, Cells: make([]cell, len(texts))}
	for i, text := range texts {
		row.Cells[i].Text = text
		switch {
		case !t.Columns[i].Number || text == "":
		case i == 0: // a rank: 0 is not dimmed as a count of 0 is
			row.Cells[i].Class = "n"
		case text == "0" || text == "0 B":
			row.Cells[i].Class = "nz" // dimmed
		default:
			row.Cells[i].Class = "n"
		}
	}
	t.Rows = append(t.Rows, row)
}

// shownRows is the number of rows that are not collapsed.
const shownRows = 12

// fold finishes a table: it removes empty columns, omits the rows after maxRows, and collapses
// those after shownRows. noun is the word for a row, such as "rank", in the note about omitted
// rows. fold returns nil for a table without rows.
func (t *table) fold(noun string, maxRows int) *table {
	if len(t.Rows) == 0 {
		return nil
	}
	t.dropEmpty()
	if n := len(t.Rows); n > maxRows {
		t.Notes = append(t.Notes, fmt.Sprintf("and %d %ss more, in result.json", n-maxRows, noun))
		t.Rows = t.Rows[:maxRows]
	}
	const minFolded = 5 // fewer rows are not worth a click
	if n := len(t.Rows); n >= shownRows+minFolded {
		t.Rows, t.Folded = t.Rows[:shownRows], t.Rows[shownRows:]
	}
	return t
}

// dropEmpty removes columns whose cells are all empty or, after the main columns, all 0.
func (t *table) dropEmpty() {
	const mainColumns = 4 // that are shown even if all are 0, such as packets and bytes
	for c := len(t.Columns) - 1; c >= 0; c-- {
		empty := true
		for _, r := range t.Rows {
			empty = empty && (r.Cells[c].Text == "" || r.Cells[c].Text == "0" && c >= mainColumns)
		}
		if !empty {
			continue
		}
		t.Columns = slices.Delete(t.Columns, c, c+1)
		for i := range t.Rows {
			t.Rows[i].Cells = slices.Delete(t.Rows[i].Cells, c, c+1)
		}
	}
}

// linkTable returns the table of a result's links, one row for each direction of a cable. The
// column without a name is the share of lost packets.
func linkTable(r *Result, maxRows int) *table {
	t := newTable("From", "To", "#Packets", "#Bytes", "#Lost", "#", "By cause", "#Doubled", "#Reordered", "#Marked", "On purpose", "Counted by")
	links := slices.Clone(r.Links)
	// Links with lost packets come first, then those with other impaired packets.
	slices.SortStableFunc(links, func(a, b Link) int {
		return cmp.Or(
			cmp.Compare(b.LostPackets(), a.LostPackets()),
			cmp.Compare(b.Duplicated+b.Reordered+b.Marked, a.Duplicated+a.Reordered+a.Marked),
		)
	})
	anyKernelCounted := false
	for i := range links {
		l := &links[i]
		var causes []string
		for _, c := range l.Causes() {
			causes = append(causes, c.Name+" "+count(c.Packets))
		}
		lost, purpose, counter := l.LostPackets(), "", ""
		if l.Impaired {
			purpose = "yes"
		}
		if l.KernelCounted {
			counter, anyKernelCounted = "the kernel", true
		}
		share := ""
		if lost > 0 {
			share = cli.Percent(lost, l.Packets)
		}
		class := ""
		if s := linkState(l); s != kit.Fine {
			class = s.String()
		}
		t.add(class, l.From, l.To, count(l.Packets), cli.Bytes(l.Bytes), count(lost), share, strings.Join(causes, ", "),
			count(l.Duplicated), count(l.Reordered), count(l.Marked), purpose, counter)
	}
	t = t.fold("direction", maxRows)
	if anyKernelCounted {
		t.Notes = append(t.Notes, "The kernel counts the packets of cables without impairments: it may count dozens of consecutive packets as one, "+
			"and does not report packets that it loses.")
	}
	return t
}

// rankTable returns the table of a result's ranks.
func rankTable(r *Result, maxRows int) *table {
	t := newTable("#Rank", "Host", "State", "#Messages", "#Bytes", "#Sent again", "#Errors", "#Reconnects", "#Time", "#Memory",
		"#Median trip", "#99 % of trips", "#Longest")
	ranks := slices.Clone(r.Ranks)
	// Ranks that did not finish come first.
	slices.SortStableFunc(ranks, func(a, b Rank) int { return cmp.Compare(rankOrder(&a), rankOrder(&b)) })
	for i := range ranks {
		rank := &ranks[i]
		class, elapsed, memory, p50, p99, worst := "", "", "", "", "", ""
		if rank.Elapsed > 0 {
			elapsed = cli.Duration(rank.Elapsed)
		}
		if rank.MemoryKiB > 0 {
			memory = cli.Bytes(rank.MemoryKiB << 10)
		}
		if l := rank.Latency; l != nil {
			p50, p99, worst = cli.Duration(l.P50), cli.Duration(l.P99), cli.Duration(l.Max)
		}
		if rank.State != stateFinished {
			class = "down"
		}
		t.add(class, fmt.Sprint(rank.Rank), rank.Host, rankState(rank), count(rank.Messages), cli.Bytes(rank.Bytes), count(rank.Resent),
			fmt.Sprint(rank.Failures), fmt.Sprint(rank.Reconn), elapsed, memory, p50, p99, worst)
	}
	return t.fold("rank", maxRows)
}

const stateFinished = "finished"

// rankOrder returns the sort key of a rank: 1 if it finished, else 0.
func rankOrder(rank *Rank) int {
	if rank.State == stateFinished {
		return 1
	}
	return 0
}

// rankState returns the state of a rank with its signal or exit code, which is negative after a
// signal and then omitted.
func rankState(rank *Rank) string {
	s := rank.State
	if rank.Signal != "" {
		s += ", " + rank.Signal
	}
	if rank.ExitCode != nil && *rank.ExitCode > 0 {
		s += fmt.Sprintf(", exit code %d", *rank.ExitCode)
	}
	return s
}

// faultTable returns the table of a result's faults. A fault that lasts until the end of the
// scenario, or for an instant, has no end.
func faultTable(r *Result, maxRows int) *table {
	t := newTable("Fault", "#From", "#Until", "#For", "#Traffic again after")
	for _, f := range r.Faults {
		row := []string{f.What, cli.Duration(f.At), "", "", ""}
		if f.Until > 0 {
			row[2], row[3] = cli.Duration(f.Until), cli.Duration(f.Until-f.At)
		}
		if f.Recovered != nil {
			row[4] = cli.Duration(*f.Recovered)
		}
		t.add("", row...)
	}
	return t.fold("fault", maxRows)
}
