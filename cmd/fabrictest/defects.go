package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// newDefectsCommand is `fabrictest defects`: what --defect takes.
func newDefectsCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "defects",
		Short: "List the defects that a NIC can be given",
		Long: `List the defects that a NIC can be given, for 'fabrictest run --defect NAME', under the
kind of NIC that can have them. Some are built from the sources: only
'fabrictest conform' has them, in a clone with Go.

The second column is what a defect imitates: a known defect (R1 to R48), a
requirement of RoCEv2 or of iWARP that it breaks, or a device known for it. Those
that begin with "cm." are of soft-RoCE's connection manager, which the calls
scenarios use.`,
		Example: `  fabrictest defects
  fabrictest defects --json | jq -r '.[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), nics.AllDefects())
			}
			return listDefects(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// listDefects lists the defects under the providers that have them, those of several
// providers first. Mutants follow the others.
func listDefects(w io.Writer) error {
	all := nics.AllDefects()
	list := func(title string, mutants bool, has func(nics.Defect) bool) error {
		some := slices.DeleteFunc(slices.Clone(all), func(q nics.Defect) bool { return q.Mutant != mutants || !has(q) })
		if len(some) == 0 {
			return nil
		}
		if mutants {
			title += ", built from the sources, for conform only"
		}
		return listUnder(w, title, some)
	}
	shared := func(q nics.Defect) bool { return len(q.Of) > 1 }
	if err := errors.Join(list("Of several kinds of NICs", false, shared), list("\nOf several kinds of NICs", true, shared)); err != nil {
		return err
	}
	for _, p := range nics.All() {
		own := func(q nics.Defect) bool { return !shared(q) && q.Of[0] == p.Name }
		title := fmt.Sprintf("\nOf %s NICs (%s)", p.Title, p.Name)
		if err := errors.Join(list(title, false, own), list(title, true, own)); err != nil {
			return err
		}
	}
	return nil
}

func listUnder(w io.Writer, title string, defects []nics.Defect) error {
	if _, err := fmt.Fprintln(w, title+":"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, q := range defects {
		imitates := q.Imitates
		if imitates == "" {
			imitates = "-"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", q.Name, imitates, q.Does)
	}
	return t.Flush()
}
