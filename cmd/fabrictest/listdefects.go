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
		Args:  cobra.NoArgs,
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
