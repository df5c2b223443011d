package main

import (
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/live"
	"github.com/fabrictest/fabrictest/scenarios"
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

// newLabUpCommand returns the command 'fabrictest lab up'.
func newLabUpCommand(program string) *cobra.Command {
	var o live.FabricOptions
	name, direct, capture, rdma := "", false, "", ""
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring up a fabric that stays up",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := live.CheckName(name); err != nil {
				return cli.Errorf("--lab: %w", err)
			}
			s, err := o.Scenario()
			if err != nil {
				return err
			}
			cfg := live.Config{Name: name, Scenario: s, Direct: direct, RDMA: rdma}
			if rdma != "" && rdma != "rxe" && rdma != "siw" {
				return cli.Errorf("--rdma %s: the kernel has rxe (RoCE) and siw (iWARP)", rdma)
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

// newLabDownCommand returns the command 'fabrictest lab down'.
func newLabDownCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "down [LAB]",
		Short: "Take a fabric down, with all programs in it",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			names := append(args, live.DefaultName)[:1] // the argument, if there is one
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

// newLabListCommand returns the command 'fabrictest lab list'.
func newLabListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the fabrics that are up", Args: cobra.NoArgs}
	return withJSON(cmd, printsJSON, func(cmd *cobra.Command, _ []string) (listing, error) {
		found, err := live.QueryAll(cmd.Context())
		return listing{value: found, write: func(w io.Writer) error { return live.WriteStates(w, found) }}, err
	})
}

// newLabSetCommand returns the command 'fabrictest lab set'.
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
			displayName := port // in error messages
			text, err := scenarios.ImpairText(info.Fabric, port, displayName, how)
			if err != nil {
				return err
			}
			return live.Impair(ctx, name, port, text)
		},
	}
	labFlag(cmd, &name)
	return cmd
}

// newLabExecCommand returns the command 'fabrictest lab exec'.
func newLabExecCommand(calledAs string) *cobra.Command {
	var o live.FabricOptions
	var flagged live.Program // with the flags --plain and --keep-going
	var lab string
	cmd := &cobra.Command{
		Use:               "exec {HOST | -n HOSTS} -- PROGRAM [ARGUMENT...]",
		Short:             "Run a program in the hosts of a fabric",
		ValidArgsFunction: completeHosts,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash < 0 || dash == len(args) {
				return cli.Errorf("put the program to run behind --, as in 'fabrictest lab exec -n 2 -- ip address'")
			}
			hosts, program := args[:dash], args[dash:]
			if o.Given("hosts") || o.Like != "" {
				if len(hosts) > 0 {
					return cli.Errorf("-n makes a fabric of its own: leave out %s, or -n", hosts[0])
				}
				return execOnce(cmd, calledAs, &o, flagged, program)
			}
			if len(hosts) != 1 {
				live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
				return cli.Errorf("name one host of the lab, as in 'fabrictest lab exec host0 -- %[1]s', or give -n for a fabric of its own, as in 'fabrictest lab exec -n 2 -- %[1]s'", program[0])
			}
			if info, err := live.Query(cmd.Context(), lab); err == nil && info.RDMA == "" {
				live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, program[0])
			}
			code, err := live.Exec(cmd.Context(), lab, hosts[0], program)
			return programResult(code, err)
		},
	}
	f := cmd.Flags()
	labFlag(cmd, &lab)
	f.IntVarP(&o.Hosts, "hosts", "n", 0, "make a fabric of so many hosts and run the program in each")
	f.BoolVar(&flagged.Plain, "plain", false, "print lines without the host's name before them")
	f.BoolVar(&flagged.KeepGoing, "keep-going", false, "let the others go on when one fails")
	cableFlag(cmd, &o.Cable)
	fabricFlags(cmd, &o)
	return cmd
}

// execOnce runs a program in each host of a fabric that is created for it. p has the flags
// --plain and --keep-going.
func execOnce(cmd *cobra.Command, calledAs string, o *live.FabricOptions, p live.Program, program []string) error {
	path, err := exec.LookPath(program[0])
	if err != nil {
		return cli.Errorf("%w", err)
	}
	s, err := o.Scenario()
	if err != nil {
		return err
	}
	live.WarnOfKernelRDMA(cmd.ErrOrStderr(), calledAs, path)
	p.Args = append([]string{path}, program[1:]...)
	code, err := live.RunProgram(cmd.Context(), s, p)
	return programResult(code, err)
}
