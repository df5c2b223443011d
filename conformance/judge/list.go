package judge

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cli"
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
	CheckDefect    func(spec string) error // returns an error for a defect that no device can have
}

// FindCases returns the cases of all suites that a filter selects. A pattern or label that matches
// no case is an error, as is an empty selection.
func FindCases(filter *conformance.Filter) (found []Case, err error) {
	// CheckPatterns returns no other error.
	if none, ok := errors.AsType[*conformance.NoCaseError](filter.CheckPatterns(Suites()...)); ok {
		return nil, NoSuchCase(none.Pattern)
	}
	for _, l := range slices.Concat(filter.Labels, filter.ExcludeLabels) {
		if known := Labels(Suites()); !slices.Contains(known, l) {
			return nil, cli.Errorf("no case has the label %s%s", l, cli.Guess(l, known))
		}
	}
	if found = Select(filter, Suites()); len(found) == 0 {
		return nil, cli.Errorf("no case meets all conditions")
	}
	return found, nil
}

// ListCases returns the cases for a list in JSON.
func (cat *Catalog) ListCases(found []Case) []ListedCase {
	all := make([]ListedCase, 0, len(found))
	devices := make(map[*conformance.Suite][]string) // by suite
	for _, c := range found {
		if devices[c.Suite] == nil {
			devices[c.Suite] = cat.devicesOf(c.Suite)
		}
		all = append(all, ListedCase{
			ID: c.ID, Suite: c.Suite.Name, Title: c.Title, Level: string(c.Level), Clause: c.Cite.String(), Rows: c.Cite.Rows,
			Labels: c.AllLabels(), Sends: c.Sends, Expects: c.Expects, Defects: c.Defects, Devices: devices[c.Suite],
		})
	}
	return all
}

// devicesOf returns the names of the devices that a suite is for.
func (cat *Catalog) devicesOf(s *conformance.Suite) (names []string) {
	for _, d := range cat.Devices {
		if slices.ContainsFunc(SuitesOf(d.Protocol), func(ofDevice *conformance.Suite) bool { return ofDevice.Name == s.Name }) {
			names = append(names, d.Name)
		}
	}
	return names
}

// WriteCases prints a line for each case, with a mark if it may harm a real device (dangerous).
func WriteCases(w io.Writer, found []Case) error {
	idWidth, clauseWidth := 0, 0
	for _, c := range found {
		idWidth, clauseWidth = max(idWidth, len(c.ID)), max(clauseWidth, len(c.Cite.Short()))
	}
	idWidth, clauseWidth = min(idWidth, 56), min(clauseWidth, 27) // longer texts shift the rest of their line
	var b strings.Builder
	for _, c := range found {
		risk := ""
		if c.Dangerous() {
			risk = " (dangerous)"
		}
		fmt.Fprintf(&b, "%-*s  %-6s  %-*s  %s%s\n", idWidth, c.ID, c.Level, clauseWidth, c.Cite.Short(), c.Title, risk)
	}
	fmt.Fprintf(&b, "\n%d cases. 'fabrictest conform show CASE' tells what one does.\n", len(found))
	_, err := io.WriteString(w, b.String())
	return err
}

// Describe prints everything about some cases: the clause, the requirements of the standards, the
// defects that they detect, and how to run them. program is the name of the command to run.
func (cat *Catalog) Describe(w io.Writer, found []Case, program string) error {
	rows, err := rowsByID()
	if err != nil {
		return err
	}
	for i, c := range found {
		if i > 0 {
			fmt.Fprintln(w)
		}
		cat.describe(w, c, rows, program)
	}
	return nil
}

// describe prints everything about one case. rows are the rows of the ledger, the list of the
// standards' requirements, by ID. program is the name of the command to run.
func (cat *Catalog) describe(w io.Writer, c Case, rows map[string]conformance.Row, program string) {
	fmt.Fprintf(w, "%s\n%s\n\n", c.ID, wrapText(c.Title+".", "  "))
	writeField := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\n", wrapText(value, fmt.Sprintf("  %-9s", name)))
		}
	}
	writeField("clause", fmt.Sprintf("%s, %s", c.Cite, c.Level))
	writeField("sends", c.Sends)
	writeField("expects", c.Expects)
	writeField("needs", conformance.CapNames(c.Needs))
	writeField("setup", c.Setup.String())
	writeField("labels", strings.Join(c.AllLabels(), ", "))
	writeField("devices", strings.Join(cat.devicesOf(c.Suite), ", "))
	fmt.Fprintf(w, "\n  Requirements in the ledger\n")
	for _, id := range c.Cite.Rows {
		r, ok := rows[id]
		if !ok {
			fmt.Fprintf(w, "    %s  (the ledger has no such row)\n", id)
			continue
		}
		clause := ""
		if r.Clause != "" {
			clause = ", " + r.Clause
		}
		fmt.Fprintf(w, "    %s  %s%s\n", id, r.Level, clause)
		if len(r.IDs) > 0 {
			fmt.Fprintf(w, "%s\n", wrapText(strings.Join(r.IDs, ", "), "      public IDs: "))
		}
		fmt.Fprintf(w, "%s\n", wrapText(r.Text, "      "))
	}
	fmt.Fprintf(w, "\n  Defects that it detects\n")
	for _, spec := range c.Defects {
		fmt.Fprintf(w, "%s\n", wrapText(spec+": "+cat.DescribeDefect(spec), "    "))
	}
	fmt.Fprintf(w, "\n  To run it\n    %s conform %s --packets\n", program, c.ID)
	if len(c.Defects) > 0 && cat.CheckDefect(c.Defects[0]) == nil { // a device can have the defect
		fmt.Fprintf(w, "    %s conform %s --defect %s\n", program, c.ID, c.Defects[0])
	}
}

// wrapText breaks a text into lines of at most width characters. The first line begins with
// prefix, and the others with as many blanks.
func wrapText(text, prefix string) string {
	const width = 88
	done, line, separator := "", prefix, ""
	for _, word := range strings.Fields(text) {
		if separator != "" && len([]rune(line))+1+len([]rune(word)) > width {
			done += line + "\n"
			line, separator = strings.Repeat(" ", len(prefix)), ""
		}
		line, separator = line+separator+word, " "
	}
	return done + line
}
