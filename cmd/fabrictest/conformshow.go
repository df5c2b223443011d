package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/ledger"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/nics"
)

// catalogued is a case as --json lists it.
type catalogued struct {
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

func newConformListCommand() *cobra.Command {
	var choice conformance.Filter
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [CASE...]",
		Short: "List the cases, and what each checks",
		Example: `  fabrictest conform list
  fabrictest conform list rc/psn
  fabrictest conform list 'mpa/*' --json | jq -r '.[].id'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			choice.IDs, choice.IncludeDangerous = args, true
			found, err := findCases(&choice)
			if err != nil {
				return err
			}
			if asJSON {
				return catalogue(cmd.OutOrStdout(), found)
			}
			return listCases(cmd.OutOrStdout(), found)
		},
		ValidArgsFunction: completeCases,
	}
	f := cmd.Flags()
	f.StringSliceVar(&choice.Labels, "label", nil, "only cases with this `LABEL`; may be repeated")
	f.StringSliceVar(&choice.ExcludeLabels, "without", nil, "no cases with this `LABEL`; may be repeated")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	_ = cmd.RegisterFlagCompletionFunc("label", completeLabels)
	_ = cmd.RegisterFlagCompletionFunc("without", completeLabels)
	return cmd
}

// findCases returns the cases of all suites that are chosen.
func findCases(choice *conformance.Filter) (found []question, err error) {
	for _, p := range choice.IDs {
		one := conformance.Filter{IDs: []string{p}}
		if one.CheckPatterns(suites.All()...) != nil {
			return nil, noSuchCase(p)
		}
	}
	for _, l := range slices.Concat(choice.Labels, choice.ExcludeLabels) {
		if known := labelsOf(suites.All()); !slices.Contains(known, l) {
			return nil, cmdline.Errorf("no case has the label %s%s", l, cmdline.Guess(l, known))
		}
	}
	for _, s := range suites.All() {
		for _, c := range choice.Select(s) {
			found = append(found, question{s, c})
		}
	}
	if len(found) == 0 {
		return nil, cmdline.Errorf("no case has all that is asked for")
	}
	return found, nil
}

func catalogue(w io.Writer, found []question) error {
	all := make([]catalogued, 0, len(found))
	devices := make(map[*conformance.Suite][]string) // asked once for a suite, not for each of its cases
	for _, q := range found {
		if devices[q.suite] == nil {
			devices[q.suite] = devicesOf(q.suite)
		}
		all = append(all, catalogued{
			ID: q.ID, Suite: q.suite.Name, Title: q.Title, Level: string(q.Level), Clause: q.Cite.String(), Rows: q.Cite.Rows,
			Labels: q.AllLabels(), Sends: q.Sends, Expects: q.Expects, Defects: q.Defects, Devices: devices[q.suite],
		})
	}
	return printJSON(w, all)
}

// devicesOf are those that a suite is for.
func devicesOf(s *conformance.Suite) (names []string) {
	for _, n := range nics.Names() {
		if slices.ContainsFunc(suites.Of(suites.ProtocolOf(n)), func(o *conformance.Suite) bool { return o.Name == s.Name }) {
			names = append(names, n)
		}
	}
	return names
}

func listCases(w io.Writer, found []question) error {
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

func newConformShowCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use:   "show CASE...",
		Short: "Show what cases check, send and expect, and which defects they detect",
		Example: `  fabrictest conform show rc/psn/gap-naked-once
  fabrictest conform show 'mpa/fpdu/*'`,
		Args: atLeast(1, "name a case: 'fabrictest conform list' lists all"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := findCases(&conformance.Filter{IDs: args, IncludeDangerous: true})
			if err != nil {
				return err
			}
			rows, err := rowsByID()
			if err != nil {
				return err
			}
			for i, q := range found {
				if i > 0 {
					fmt.Fprintln(cmd.OutOrStdout())
				}
				showCase(cmd.OutOrStdout(), q, rows, program)
			}
			return nil
		},
		ValidArgsFunction: completeCases,
	}
}

// showCase prints all that there is to know of a case.
func showCase(w io.Writer, q question, rows map[string]ledger.Row, program string) {
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
	fact("devices", strings.Join(devicesOf(q.suite), ", "))
	fmt.Fprintf(w, "\n  Requirements in the ledger\n")
	for _, id := range q.Cite.Rows {
		r, ok := rows[id]
		if !ok {
			fmt.Fprintf(w, "    %s  (the ledger has no such row)\n", id)
			continue
		}
		fmt.Fprintf(w, "    %s  %s%s\n%s\n", id, r.Level, behind(", ", r.Clause), indent(r.Text, "      "))
	}
	fmt.Fprintf(w, "\n  Defects that it catches\n")
	for _, m := range q.Defects {
		fmt.Fprintf(w, "%s\n", indent(m+": "+defectDoes(m), "    "))
	}
	fmt.Fprintf(w, "\n  To run it\n    %s conform %s --packets\n", program, q.ID)
	if len(q.Defects) > 0 && nics.CheckDefect(q.Defects[0]) == nil {
		fmt.Fprintf(w, "    %s conform %s --defect %s\n", program, q.ID, q.Defects[0])
	}
}

func behind(sep, s string) string {
	if s == "" {
		return ""
	}
	return sep + s
}

// defectDoes tells what a defect does, and what it imitates.
func defectDoes(spec string) string {
	for _, q := range nics.AllDefects() {
		if plainDefect(q.Name) == plainDefect(spec) {
			return fmt.Sprintf("%s%s (%s)", q.Does, behind("; as ", q.Imitates), strings.Join(q.Of, ", "))
		}
	}
	return "no device can have it yet"
}

// indent breaks a text into lines of a readable length. The first begins with the
// given text, and the others stand under where it ends.
func indent(text, first string) string {
	const room = 88
	var b strings.Builder
	line := first
	blank := strings.Repeat(" ", len(first))
	empty := true
	for _, word := range strings.Fields(text) {
		if !empty && len([]rune(line))+1+len([]rune(word)) > room {
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
