package certificate

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

func merge(a, b []string) []string {
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}

// WriteJSON writes the comparison for programs.
func (c *Comparison) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(c)
}

// marks are the states in a cell.
var marks = map[State]string{
	Pass: "pass", Fail: "**FAIL**", Deviates: "deviates", Stale: "stale", Broken: "broken",
	Unsupported: "–", NotAsked: "?", Untestable: "", "": "",
}

// WriteMarkdown writes a summary and a table of the clauses in which the devices
// differ; of all of them if asked for.
func (c *Comparison) WriteMarkdown(w io.Writer, all bool) error {
	var b strings.Builder
	b.WriteString("| clauses |")
	for _, col := range c.Columns {
		fmt.Fprintf(&b, " %s |", cell(col.Name))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(c.Columns)) + "\n")
	for _, level := range levels {
		for _, s := range states {
			if s == Untestable || !c.counts(level, s) {
				continue
			}
			fmt.Fprintf(&b, "| %s: %s |", level, s)
			for i := range c.Columns {
				fmt.Fprintf(&b, " %d |", c.Columns[i].count(level, s))
			}
			b.WriteByte('\n')
		}
	}
	b.WriteString("\n| row | level | clause | what it demands |")
	for _, col := range c.Columns {
		fmt.Fprintf(&b, " %s |", cell(col.Name))
	}
	b.WriteString("\n|---|---|---|---|" + strings.Repeat("---|", len(c.Columns)) + "\n")
	for i := range c.Clauses {
		e := &c.Clauses[i]
		if !all && !e.Differs() {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |", cell(e.Row), e.Level, cell(e.Clause), cell(e.Text))
		for _, s := range e.States {
			fmt.Fprintf(&b, " %s |", marks[s])
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// cell keeps a text from ending its cell.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;").Replace(s)
}

func (c *Column) count(level string, s State) int {
	for _, n := range c.Counts {
		if n.Level == level && n.State == s {
			return n.N
		}
	}
	return 0
}

func (c *Comparison) counts(level string, s State) bool {
	return slices.ContainsFunc(c.Columns, func(col Column) bool { return col.count(level, s) > 0 })
}
