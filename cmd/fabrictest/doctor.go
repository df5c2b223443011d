package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/netns"
)

func newDoctorCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Print what this machine supports, and how to get the rest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := append(append(netns.Probe(), kernel.Capabilities()...), lab.ProgramCapabilities()...)
			var err error
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), found)
			} else {
				out := cmd.OutOrStdout()
				err = lab.WriteCapabilities(uncleaned(out), found, terminalOf(out) != nil && os.Getenv("NO_COLOR") == "")
			}
			if err == nil && netns.Available() != nil {
				return errFailed
			}
			return err
		},
	}
	jsonFlag(cmd, &asJSON, printsJSON)
	return cmd
}
