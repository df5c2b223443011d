package main

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/runner"
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
)

// certifyOptions are those of `fabrictest certify`.
type certifyOptions struct {
	conformance.Filter
	program    string
	agent      string
	key        string
	device     string
	intf       string
	wire       string
	peers      []string
	level      string
	seed       string
	deviations string
	sign       string
	out        string
	caseTime   time.Duration
	guest      deviceGuestFlags

	networks []netip.Prefix // of peers
}

// newCertifyCommand returns the command 'fabrictest certify'.
func newCertifyCommand(o *certifyOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certify [CASE...] {--guest KIND | --agent HOST:PORT --key FILE --device NAME --interface IF} --out FOLDER",
		Short: "Test a Linux kernel's RDMA device or a NIC on its link, and write a certificate",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.IDs = args
			return o.run(cmd)
		},
		ValidArgsFunction: completeCases,
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "`HOST:PORT` of the agent")
	f.StringVar(&o.key, "key", "", "`FILE` with the agent's key")
	f.StringVar(&o.device, "device", "", "the device to test, by its `NAME` on its host")
	f.StringVar(&o.intf, "interface", "", "the network interface `NAME` of this host that is connected to the device")
	f.StringVar(&o.wire, "wire", "", "how this host sends packets, `WIRE`: packet (default) or udp for RoCEv2, tcp (default) or segments for iWARP")
	f.StringSliceVar(&o.peers, "peer", nil, "an address of this end in a subnet of the device, as `ADDR/LEN`; may be repeated")
	levelFlag(cmd, &o.level)
	labelFlag(cmd, &o.Labels)
	f.BoolVar(&o.IncludeDangerous, "dangerous", false, "also run cases that can crash or hang the device, and restart it after each")
	seedFlag(cmd, &o.seed, "", "cases choose", " (default 1)")
	f.StringVar(&o.deviations, "deviations", "", "`FILE` with the known deviations of the device, or the name of one that ships with fabrictest")
	f.StringVar(&o.sign, "sign", "", "sign with the SSH key in this `FILE`: a private key, or the public key of one that an SSH agent has")
	f.StringVar(&o.out, "out", "", "`FOLDER` for the certificate, which is created")
	o.guest.flags(cmd)
	f.DurationVar(&o.caseTime, "case-time", 0, "how long a case may wait for one call of a verb before it counts as hung; the whole case may take ten times as long (default 2m)")
	_ = cmd.RegisterFlagCompletionFunc("wire", fixed("packet", "udp", "tcp", "segments"))
	cmd.AddCommand(newCertifyVerifyCommand(), newCertifyCompareCommand())
	return cmd
}

// check returns an error for invalid or contradictory flags, and sets o.networks and o.Level.
func (o *certifyOptions) check(cmd *cobra.Command) error {
	if err := o.guest.check(cmd); err != nil {
		return err
	}
	for _, need := range []struct{ value, flag, what string }{
		{o.agent, "--agent", "where the agent of the device's host is, HOST:PORT; or, with --guest, a device of Linux's to boot a guest with"},
		{o.key, "--key", "the file with the agent's key; 'agent key FILE' makes one"},
		{o.device, "--device", "the device, by the name that its host has for it"},
		{o.intf, "--interface", "the network interface here that the device's cable ends at"},
		{o.out, "--out", "the folder for the certificate"},
	} {
		if need.value == "" && (o.guest.kind == "" || need.flag == "--out") { // a guest needs only --out
			return cli.Errorf("%s: name %s", need.flag, need.what)
		}
	}
	for _, text := range o.peers {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return cli.Errorf("--peer %s: give an address and the length of its network's prefix, as in 198.51.100.20/24", text)
		}
		o.networks = append(o.networks, p)
	}
	if err := certificate.CheckKey(o.sign); err != nil {
		return err
	}
	const packets, streams = false, true
	if known := slices.Concat(bench.DeviceWires(packets), bench.DeviceWires(streams)); o.wire != "" && !slices.Contains(known, bench.DeviceWire(o.wire)) {
		return cli.Errorf("--wire %s: give packet or udp for RoCEv2, tcp or segments for iWARP", o.wire)
	}
	var err error
	o.Level, err = judge.ParseLevel(o.level)
	return err
}

// run tests a device, that of a guest which it boots (--guest) or one that an agent serves
// (--agent), and writes the certificate.
func (o *certifyOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	seed, err := cli.ParseSeed(o.seed, defaultSeed)
	if err != nil {
		return err
	}
	if o.guest.kind != "" {
		return o.runGuest(cmd, seed)
	}
	key, err := agent.ReadKey(o.key)
	if err != nil {
		return err
	}
	dial := func(ctx context.Context) (*agent.Client, error) { return agent.Dial(ctx, o.agent, key) }
	client, err := dial(cmd.Context())
	if err != nil {
		return err
	}
	c, err := runner.NewCertification(o.options(cmd, seed), "") // no protocol: c.Judge asks the device for it
	if err != nil {
		return err
	}
	run, err := c.TestDevice(cmd.Context(), client, o.agent, bench.DeviceOptions{Interface: o.intf, Peers: o.networks, Agent: agent.IP(o.agent), Redial: dial})
	if err != nil {
		return err
	}
	return o.finish(cmd, c, run)
}

// options returns the flags as options of package runner.
func (o *certifyOptions) options(cmd *cobra.Command, seed uint64) runner.CertifyOptions {
	return runner.CertifyOptions{
		Filter: o.Filter, Seed: seed, Deviations: o.deviations, CaseTime: o.caseTime, Wire: bench.DeviceWire(o.wire), Device: o.device,
		Command: func(ids []string) string { return o.command(ids, seed) },
		Folder:  func() (string, error) { return conformRuns.NewFolder(o.out, time.Now()) },
		Show: func(total int) *conform.Display {
			const allLadders = false // packet ladders of failing cases only
			return conform.NewDisplay(report.DisplayConfig{Out: withoutEscapeFilter(cmd.OutOrStdout()), Status: withoutEscapeFilter(cmd.ErrOrStderr()), Total: total}, allLadders)
		},
	}
}

// finish writes the certificate, signs it and prints the results.
func (o *certifyOptions) finish(cmd *cobra.Command, c *runner.Certification, run *conform.Run) error {
	cert, dir, err := c.Certificate(run)
	if err != nil {
		return err
	}
	paths := report.Paths{HTML: filepath.Join(dir, certificate.PageFile), Result: filepath.Join(dir, certificate.File)}
	if err := c.Finish(run, paths); err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "Certificate: %s: %s\n", cert.Outcome, cert.Why)
	if err := o.signIn(cmd, dir); err != nil {
		return err
	}
	if err := c.Err(cmd.Context()); err != nil {
		return err
	}
	if !run.Good() {
		return errFailed
	}
	return nil
}

// signIn signs the certificate in a folder, if --sign is given.
func (o *certifyOptions) signIn(cmd *cobra.Command, dir string) error {
	if o.sign == "" {
		return nil
	}
	// An interrupted run is signed, too.
	if err := certificate.Sign(context.WithoutCancel(cmd.Context()), dir, o.sign); err != nil {
		return fmt.Errorf("the certificate is written, and not signed: %w", err)
	}
	return nil
}

// command is the command line that runs these cases again, with FOLDER in place of the value of
// --out.
func (o *certifyOptions) command(ids []string, seed uint64) string {
	l := cli.NewLine(o.guest.calledAs(o.program) + " certify").Args(ids...)
	if o.guest.kind != "" {
		l.Add(o.guest.shellFlags()...)
	} else {
		l.Flag("agent", o.agent).Flag("key", o.key).Flag("device", o.device).Flag("interface", o.intf).Flag("peer", o.peers...)
	}
	l.Flag("wire", o.wire).Flag("level", strings.ToLower(o.level)).Flag("label", o.Labels...).Switch("dangerous", o.IncludeDangerous)
	if o.caseTime != 0 {
		l.Flag("case-time", o.caseTime.String())
	}
	return l.Flag("deviations", o.deviations).Flag("seed", fmt.Sprint(seed)).Flag("out", "FOLDER").String()
}
