package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/scenarios"
)

func newLabSetCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "set PORT up|down|clean|KEY=VALUE...",
		Short: "Impair, cut or restore the links of a fabric that is up",
		Long: `Change the links of a fabric that is up. PORT is a host (host1), one of its ports
(host1/rdma0) or a pattern (host*).

down cuts the link, up restores it. KEY=VALUE replaces the impairments of packets: the
keys are those of a scenario's impair
section (loss, burst, duplicate, reorder, delay, jitter, corrupt, truncate, mark,
rate, queue, way). clean removes all impairments.

Packets are impaired in both directions; with way=out or way=in, only those that the
port sends or receives.`,
		Example: `  fabrictest lab set host1 down
  fabrictest lab set host1 up
  fabrictest lab set 'host*' loss=1%
  fabrictest lab set host0/rdma1 delay=2ms jitter=1ms way=out
  fabrictest lab set host1 clean`,
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
