package main

import (
	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/live"
)

// fabricFlags adds the flags that describe a fabric, but for the number of hosts.
func fabricFlags(cmd *cobra.Command, o *live.FabricOptions) {
	f := cmd.Flags()
	o.Given = f.Changed
	f.StringVar(&o.Kind, "fabric", "", "`SHAPE`: pair, star or fat-tree (default: a star, a pair if there are two hosts)")
	f.IntVar(&o.Rails, "rails", 1, "NICs of each host, each on a subnet of its own")
	f.IntVar(&o.Leaves, "leaves", 0, "leaf switches of a fat tree (default: one for every two hosts)")
	f.IntVar(&o.Spines, "spines", 0, "spine switches of a fat tree (default: 2)")
	f.IntVar(&o.MTU, "mtu", 9000, "largest IP packet")
	f.StringVar(&o.Like, "like", "", "take the fabric and its impairments from `SCENARIO` instead")
	_ = cmd.RegisterFlagCompletionFunc("fabric", fixed("pair", "star", "fat-tree"))
	_ = cmd.RegisterFlagCompletionFunc("like", completeScenarios)
}

func newLabUpCommand(program string) *cobra.Command {
	var o live.FabricOptions
	name, direct, capture, rdma := "", false, "", ""
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up a fabric that stays up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := live.CheckName(name); err != nil {
				return cmdline.Errorf("--lab: %w", err)
			}
			s, err := o.Scenario()
			if err != nil {
				return err
			}
			cfg := live.Config{Name: name, Scenario: s, Direct: direct, RDMA: rdma}
			if rdma != "" && rdma != "rxe" && rdma != "siw" {
				return cmdline.Errorf("--rdma %s: the kernel has rxe (RoCE) and siw (iWARP)", rdma)
			}
			if cfg.Capture, err = live.CaptureFile(capture, direct); err != nil {
				return err
			}
			if err := live.Up(cmd.Context(), cfg); err != nil {
				return err
			}
			info, err := live.Query(cmd.Context(), name)
			if err != nil {
				return err
			}
			return info.WriteHints(cmd.OutOrStdout(), program)
		},
	}
	f := cmd.Flags()
	labFlag(cmd, &name)
	f.IntVar(&o.Hosts, "hosts", 2, "how many hosts")
	f.BoolVar(&direct, "direct", false, "use veth pairs without a user-space switch: faster, but links can only be cut, not impaired")
	f.StringVar(&capture, "capture", "", "`FILE` (pcapng) for all packets of the links; it is complete when the lab is down")
	f.StringVar(&rdma, "rdma", "", "give every NIC the kernel's own RDMA in software too: `KIND` is rxe or siw (as root, where the kernel has it)")
	fabricFlags(cmd, &o)
	_ = cmd.RegisterFlagCompletionFunc("rdma", fixed("rxe", "siw"))
	return cmd
}
