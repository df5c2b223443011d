package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/scenarios"
)

func newLabSetCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:               "set PORT up|down|clean|KEY=VALUE...",
		Short:             "Impair, cut or restore the links of a fabric that is up",
		Args:              atLeast(2, "name a port and what is to become of it, as in 'fabrictest lab set host1 loss=1%'"),
		ValidArgsFunction: completeSet,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			port, how := args[0], args[1:]
			if len(how) == 1 && (how[0] == "up" || how[0] == "down") {
				return live.SetLink(ctx, name, port, how[0] == "up")
			}
			info, err := live.Query(ctx, name)
			if err != nil {
				return err
			}
			text, err := scenarios.ImpairText(info.Fabric, port, port, how)
			if err != nil {
				return err
			}
			return live.Impair(ctx, name, port, text)
		},
	}
	labFlag(cmd, &name)
	return cmd
}
