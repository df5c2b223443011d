package main

import (
	"errors"
	"fmt"

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
			return live.WriteStates(cmd.OutOrStdout(), found)
		},
	}
	jsonFlag(cmd, &asJSON, printsJSON)
	return cmd
}
