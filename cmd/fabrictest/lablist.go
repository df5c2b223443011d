package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
)

func newLabDownCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a fabric down, with all programs in it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(args, live.DefaultName)[:1]
			if all {
				up, err := live.List(cmd.Context())
				if err != nil {
					return err
				}
				names = up
			}
			var errs []error
			for _, n := range names {
				err := live.Down(cmd.Context(), n)
				if err == nil {
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "Lab %s is down.\n", n)
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
		ValidArgsFunction: completeLabs,
	}
	cmd.Flags().BoolVar(&all, "all", false, "all labs of this user")
	return cmd
}

func newLabListCommand() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the fabrics that are up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, err := live.QueryAll(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			return listLabs(cmd.OutOrStdout(), found)
		},
	}
	jsonFlag(cmd, &asJSON, printsJSON)
	return cmd
}

func listLabs(w io.Writer, found []live.State) error {
	if len(found) == 0 {
		_, err := fmt.Fprintln(w, "No lab is up: start one with 'fabrictest lab up'.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range found {
		if l.Silent {
			fmt.Fprintf(t, "%s\tdoes not answer\t\tprocess %d\n", l.Name, l.PID)
			continue
		}
		fmt.Fprintf(t, "%s\t%d hosts\t%d programs\tprocess %d\n", l.Name, len(l.Topology.Hosts), l.Programs, l.PID)
	}
	return t.Flush()
}
