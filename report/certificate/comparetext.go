package certificate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/report/conform"
)

// WriteJSON writes the comparison as JSON.
func (c *Comparison) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(c)
}

// marks are the texts of states in table cells.
var marks = map[State]string{
	Pass: "met", Fail: "**not met**", Deviates: "*on record*", Stale: "**stale**", Broken: "**broken**",
	Unsupported: "–", NotAsked: "?", Untestable: "", "": "",
}

// WriteMarkdown writes a table of the devices, and for each document a table of the clauses that
// some devices meet and others do not. If all is true, the tables have all clauses.
func (c *Comparison) WriteMarkdown(w io.Writer, all bool) error {
	var b strings.Builder
	c.summarize(&b)
	want, what := (*Compared).Differs, "that some meet and others do not"
	if all {
		want, what = func(*Compared) bool { return true }, "in all"
	}
	noLinks := make([]string, len(c.Columns))
	docs := c.documents(noLinks, want)
	n := 0
	for _, d := range docs {
		n += d.N
	}
	fmt.Fprintf(&b, "\n%s %s. – means not supported, ? not asked; *on record* means not met, for a reason that is on record.\n", cli.Plural(n, "clause"), what)
	for _, d := range docs {
		fmt.Fprintf(&b, "\n### %s\n\n| row | level | clause | what it demands |", escapeCell(d.Title))
		for _, name := range d.Names {
			fmt.Fprintf(&b, " %s |", escapeCell(name))
		}
		b.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(d.Names)) + "\n")
		for _, s := range d.Sections {
			for _, clause := range s.Clauses {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |", escapeCell(clause.Row), escapeCell(clause.Level), escapeCell(clause.Place()), escapeCell(clause.Text))
				for _, st := range clause.Cells {
					fmt.Fprintf(&b, " %s |", marks[st])
				}
				b.WriteByte('\n')
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// summarize writes a table with a line for each device and level: the numbers of clauses in each
// state of barOrder (all but Untestable) that occurs.
func (c *Comparison) summarize(b *strings.Builder) {
	var used []State
	for _, s := range barOrder {
		if slices.ContainsFunc(c.Columns, func(col Column) bool {
			return slices.ContainsFunc(conform.Levels, func(l string) bool { return countOf(col.Counts, l, s) > 0 })
		}) {
			used = append(used, s)
		}
	}
	b.WriteString("| device | | level |")
	for _, s := range used {
		fmt.Fprintf(b, " %s |", stateNames[s])
	}
	b.WriteString("\n|---|---|---|" + strings.Repeat("---:|", len(used)) + "\n")
	for i := range c.Columns {
		row := newDeviceRow(&c.Columns[i], "")
		name, about := "**"+escapeCell(row.Name)+"**", escapeCell(strings.Join(row.About, ", "))
		if row.OutcomeName != "" {
			about += ": " + strings.ToLower(row.OutcomeName)
		}
		for _, l := range row.Levels {
			fmt.Fprintf(b, "| %s | %s | %s |", name, about, escapeCell(l.Level))
			name, about = "", "" // only in the device's first line
			for _, s := range used {
				fmt.Fprintf(b, " %d |", countOf(row.Counts, l.Level, s))
			}
			b.WriteByte('\n')
		}
	}
}

// cellEscapes are the characters with a meaning in a cell of a Markdown table.
var cellEscapes = strings.NewReplacer("|", `\|`, "<", "&lt;")

// escapeCell escapes a text for a cell of a Markdown table.
func escapeCell(s string) string { return cellEscapes.Replace(cli.PrintableLine(s)) }

// countOf returns the number of clauses of a level in a state, 0 if counts does not have it.
func countOf(counts []Count, level string, s State) int {
	for _, n := range counts {
		if n.Level == level && n.State == s {
			return n.N
		}
	}
	return 0
}
