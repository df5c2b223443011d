package judge

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// ListedCase is a case in the JSON list of WriteCases.
type ListedCase struct {
	ID      string   `json:"id"`
	Suite   string   `json:"suite"`
	Title   string   `json:"title"`
	Level   string   `json:"level"`
	Clause  string   `json:"clause"`
	Rows    []string `json:"rows"`
	Labels  []string `json:"labels"`
	Sends   string   `json:"sends"`
	Expects string   `json:"expects"`
	Defects []string `json:"check-cases"`
	Devices []string `json:"devices"`
}

// Catalog has what lists of cases tell about devices and their defects.
type Catalog struct {
	Devices        []*Device // the emulated devices
	DescribeDefect func(spec string) string
	CheckDefect    func(spec string) error // of a defect that no device can have
}

// FindCases returns the cases of all suites that a filter selects. A pattern or label that no
// case has is an error, as is an empty selection.
func FindCases(choice *conformance.Filter) (found []Case, err error) {
	for _, pattern := range choice.IDs {
		single := conformance.Filter{IDs: []string{pattern}}
		if single.CheckPatterns(Suites()...) != nil {
			return nil, NoSuchCase(pattern)
		}
	}
	for _, l := range slices.Concat(choice.Labels, choice.ExcludeLabels) {
		if known := Labels(Suites()); !slices.Contains(known, l) {
			return nil, cmdline.Errorf("no case has the label %s%s", l, cmdline.Guess(l, known))
		}
	}
	if found = Select(choice, Suites()); len(found) == 0 {
		return nil, cmdline.Errorf("no case meets all conditions")
	}
	return found, nil
}

// ListCases returns the cases for a list in JSON.
func (cat *Catalog) ListCases(found []Case) []ListedCase {
	all := make([]ListedCase, 0, len(found))
	devices := make(map[*conformance.Suite][]string) // by suite
	for _, q := range found {
		if devices[q.Suite] == nil {
			devices[q.Suite] = cat.devicesOf(q.Suite)
		}
		all = append(all, ListedCase{
			ID: q.ID, Suite: q.Suite.Name, Title: q.Title, Level: string(q.Level), Clause: q.Cite.String(), Rows: q.Cite.Rows,
			Labels: q.AllLabels(), Sends: q.Sends, Expects: q.Expects, Defects: q.Defects, Devices: devices[q.Suite],
		})
	}
	return all
}

// devicesOf returns the names of the devices that a suite is for.
func (cat *Catalog) devicesOf(s *conformance.Suite) (names []string) {
	for _, d := range cat.Devices {
		if slices.ContainsFunc(SuitesOf(d.Protocol), func(o *conformance.Suite) bool { return o.Name == s.Name }) {
			names = append(names, d.Name)
		}
	}
	return names
}

// WriteCases prints a line for each case.
func WriteCases(w io.Writer, found []Case) error {
	idWidth, clauseWidth := 0, 0
	for _, q := range found {
		idWidth, clauseWidth = max(idWidth, len(q.ID)), max(clauseWidth, len(q.Cite.String()))
	}
	idWidth, clauseWidth = min(idWidth, 56), min(clauseWidth, 24)
	var b strings.Builder
	for _, q := range found {
		risk := ""
		if q.Dangerous() {
			risk = " (dangerous)"
		}
		fmt.Fprintf(&b, "%-*s  %-6s  %-*s  %s%s\n", idWidth, q.ID, q.Level, clauseWidth, q.Cite, q.Title, risk)
	}
	fmt.Fprintf(&b, "\n%d cases. 'fabrictest conform show CASE' tells what one does.\n", len(found))
	_, err := io.WriteString(w, b.String())
	return err
}

// Describe prints everything about some cases: the clause, the requirements in the ledger,
// the defects that they detect, and how to run them with the program.
func (cat *Catalog) Describe(w io.Writer, found []Case, program string) error {
	rows, err := rowsByID()
	if err != nil {
		return err
	}
	for i, q := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		cat.describe(w, q, rows, program)
	}
	return nil
}

// describe prints everything about one case. rows are the rows of the ledger by ID.
func (cat *Catalog) describe(w io.Writer, q Case, rows map[string]conformance.Row, program string) {
	fmt.Fprintf(w, "%s\n%s\n\n", q.ID, indent(q.Title+".", "  "))
	fact := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\n", indent(value, fmt.Sprintf("  %-9s", name)))
		}
	}
	fact("clause", fmt.Sprintf("%s, %s", q.Cite, q.Level))
	fact("sends", q.Sends)
	fact("expects", q.Expects)
	fact("needs", conformance.CapNames(q.Needs))
	fact("setup", q.Setup.String())
	fact("labels", strings.Join(q.AllLabels(), ", "))
	fact("devices", strings.Join(cat.devicesOf(q.Suite), ", "))
	fmt.Fprintf(w, "\n  Requirements in the ledger\n")
	for _, id := range q.Cite.Rows {
		r, ok := rows[id]
		if !ok {
			fmt.Fprintf(w, "    %s  (the ledger has no such row)\n", id)
			continue
		}
		fmt.Fprintf(w, "    %s  %s%s\n%s\n", id, r.Level, prefixed(", ", r.Clause), indent(r.Text, "      "))
	}
	fmt.Fprintf(w, "\n  Defects that it detects\n")
	for _, m := range q.Defects {
		fmt.Fprintf(w, "%s\n", indent(m+": "+cat.DescribeDefect(m), "    "))
	}
	fmt.Fprintf(w, "\n  To run it\n    %s conform %s --packets\n", program, q.ID)
	if len(q.Defects) > 0 && cat.CheckDefect(q.Defects[0]) == nil {
		fmt.Fprintf(w, "    %s conform %s --defect %s\n", program, q.ID, q.Defects[0])
	}
}

// prefixed returns s after sep; nothing if s is empty.
func prefixed(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// indent breaks a text into lines of at most width characters. The first line begins with
// first, the others with as many blanks.
func indent(text, first string) string {
	const width = 88
	var b strings.Builder
	line := first
	blank := strings.Repeat(" ", len(first))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(line + "\n")
			line, empty = blank, true
		}
		if !empty {
			line += " "
		}
		line, empty = line+word, false
	}
	return b.String() + line
}
