package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab"
)

// newQuirksCommand is `fabrictest quirks`: what --quirk takes.
func newQuirksCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "quirks",
		Short: "List the flaws that a NIC can be given",
		Long: `List the flaws that a NIC can be given, for 'fabrictest run --quirk NAME'.

The second column is what a quirk imitates: a known defect (R1 to R48), a
requirement of RoCEv2 that it breaks, or a device known for it. Those that begin
with "cm." are of the connection manager, which the calls scenarios use.`,
		Example: `  fabrictest quirks
  fabrictest quirks --json | jq -r '.[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				e.SetEscapeHTML(false)
				return e.Encode(lab.AllFlaws())
			}
			return listFlaws(cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listFlaws(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, q := range lab.AllFlaws() {
		imitates := q.Defect
		if imitates == "" {
			imitates = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", q.Name, imitates, q.Does)
	}
	return t.Flush()
}
