package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/interop"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/verbs"
)

// interopVerbs is `fabrictest interop verbs`.
type interopVerbs struct {
	guest       deviceGuestFlags
	loss        string
	impair      string
	seed        uint64
	connections int
	timeout     time.Duration
	out         string
	list        bool
	patterns    []string
	program     string // how we were called
}

// newInteropVerbsCommand returns the command 'fabrictest interop verbs'.
func newInteropVerbsCommand(o *interopVerbs) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verbs [PATTERN...] --guest KIND",
		Short: "Exchange every operation with a kernel's own device in a guest, and check every byte",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.patterns = args; len(args) == 0 {
				o.patterns = []string{"*"}
			}
			return o.run(cmd, args)
		},
	}
	o.guest.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.loss, "loss", "", "`SHARE` of packets to lose, each way: 5%")
	f.StringVar(&o.impair, "impair", "", "`WORDS` for other impairments, as in 'lab kernel set'")
	f.Uint64Var(&o.seed, "seed", 1, "seed of random impairments")
	f.IntVar(&o.connections, "connections", 0, "`N` connections to make one after the other")
	f.DurationVar(&o.timeout, "timeout", 0, "how long a completion or a connection may take (default 30s, and 2m where packets are impaired)")
	f.StringVar(&o.out, "out", "", "`FILE` for the results as JSON")
	f.BoolVar(&o.list, "list", false, "print the names of the exchanges and run none")
	return cmd
}

// run boots a guest and exchanges the selected operations with it; with --list it only prints them.
// To boot, it runs this command again in new namespaces; in that process inside is true.
func (o *interopVerbs) run(cmd *cobra.Command, args []string) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	if o.list {
		cases, err := o.options(cmd, o.guest.cfg).Cases(usualPayload)
		for _, c := range cases {
			fmt.Fprintln(cmd.OutOrStdout(), c.Name())
		}
		return err
	}
	if err := o.guest.check(cmd); err != nil {
		return err
	}
	cfg, err := o.guest.config(cmd) // outside first: the new namespaces have no network to fetch packages from
	if err != nil {
		return err
	}
	inside, err := kernel.IsEmptyNamespace()
	switch {
	case err != nil:
		return err
	case inside:
		ok, err := o.options(cmd, cfg).Run(cmd.Context())
		if err == nil && !ok {
			return errFailed
		}
		return err
	}
	return runUnshared(cmd, args, o.out)
}

// usualPayload is the payload of a full RoCE packet before a device is open: with it, the sizes in
// the names of exchanges are those of most devices.
var usualPayload = verbs.MTU4096.Bytes()

// options returns the flags for package interop.
func (o *interopVerbs) options(cmd *cobra.Command, cfg kernel.Config) *interop.Options {
	return &interop.Options{
		Guest: cfg, Patterns: o.patterns, Connections: o.connections, Timeout: o.timeout, File: o.out,
		Out: cmd.OutOrStdout(), Status: cmd.ErrOrStderr(), Command: o.command,
	}
}

// check returns an error for wrong flags, and for patterns that match no case, before a guest is
// booted. It sets the device, the impairments and the seed of the guest.
func (o *interopVerbs) check(cmd *cobra.Command) error {
	switch {
	case o.guest.kind == "":
		return cli.Errorf("--guest: name the device that the guest is to have: %s", cli.Choices(guestKinds))
	case !slices.Contains(guestKinds, o.guest.kind):
		return cli.Errorf("--guest %s: give %s", o.guest.kind, cli.Choices(guestKinds))
	case o.connections < 0:
		return cli.Errorf("--connections %d: give a number that is not negative", o.connections)
	}
	words := o.impair
	if o.loss != "" {
		words += " loss=" + o.loss
	}
	var err error
	if o.guest.cfg.Impair, err = kernel.ParseImpairFlag(words); err != nil {
		return err
	}
	o.guest.cfg.Seed, o.guest.cfg.Devices = o.seed, []kernel.Device{kernel.Device(o.guest.kind)}
	if _, err := o.options(cmd, o.guest.cfg).Cases(usualPayload); err != nil {
		return &cli.Error{Err: err}
	}
	return nil
}

// command is the command line that runs an exchange alone.
func (o *interopVerbs) command(name string) string {
	l := cli.NewLine(o.guest.calledAs(o.program)+" interop verbs").Args(name).Add(o.guest.shellFlags()...).Flag("loss", o.loss).Flag("impair", o.impair)
	if o.timeout != 0 {
		l.Flag("timeout", o.timeout.String())
	}
	return l.Flag("seed", fmt.Sprint(o.seed)).String()
}
