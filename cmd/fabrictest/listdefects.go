package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/nics"
)

// newListDefectsCommand returns the command `fabrictest list defects`, which lists the
// values of --defect.
func newListDefectsCommand() *cobra.Command {
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
		Example: `  fabrictest list defects
  fabrictest list defects --json | jq -r '.[].name'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return printJSON(cmd.OutOrStdout(), nics.AllDefects())
			}
			return nics.WriteDefects(cmd.OutOrStdout())
		},
	}
	jsonFlag(cmd, &asJSON, printsJSON)
	return cmd
}
