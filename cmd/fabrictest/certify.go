package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/judge"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/certify"
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
	guest      guestFlagSet

	networks []netip.Prefix // of peers
}

func newCertifyCommand(o *certifyOptions) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "certify [CASE...] {--guest KIND | --agent HOST:PORT --key FILE --device NAME --interface IF} --out FOLDER",
		Short: "Test a Linux kernel's RDMA device or a NIC on its link, and write a certificate",
		Long: `Judge a device on its own wire, by the same cases as 'conform', and write a certificate.

With --guest it is a Linux kernel's own, soft-RoCE (rxe) or soft-iWARP (siw): a virtual
machine is booted for it, as 'lab kernel' does, and switched off again. A guest that
crashes or hangs is switched off and on, and judging goes on: the case in which that
happened is broken, with what the kernel said. This takes no root where /dev/net/tun may
be opened. The program must have been built with -tags ibverbs, or --agent-program names
one that was: it runs in the guest.

Otherwise it is a device of another host. An agent there ('fabrictest agent') posts
verbs; this program is the other end of the device's cable. --interface is the network
interface that the cable ends at.

RoCEv2 is judged by raw packets, which takes CAP_NET_RAW. The judge is a host of its
own there: --peer ADDR/LEN is the first of four addresses in a row that nobody has, in a
network of the device's, and may be given for IPv4 and for IPv6. Without one for IPv6 the
judge makes up link-local ones. With --wire udp it is an ordinary program with UDP sockets
at the addresses that the interface has (or at those that --peer names of them), which
takes no permission: what a socket neither shows nor sends is unsupported, and the
certificate lists it. Of several addresses the last is left to the device's partners.

iWARP is judged over the TCP of this host, at the addresses that the interface has. With
--wire segments the judge makes TCP by hand, as a host of its own at --peer, which takes
CAP_NET_RAW: it sees the device's segments, and chooses its own and their size.

What the device does not claim is unsupported, and so is what this bench cannot ask, with
the reason; what it claims and refuses fails. --deviations names a file with what is known
not to be met and why, or those that come with fabrictest, as in rxe-6.12.

The folder is fit for a file: certificate.json and certificate.html, the packets of every
case, junit.xml, the hashes of all of it and, with --sign, a signature by an SSH key; of a
guest, also all that it printed. 'certify verify' checks such a folder, 'certify compare'
puts several side by side.

Exit codes: 0 nothing that was asked speaks against the device, 1 something does, 2
called wrongly; 130 ended by Ctrl-C, 143 by SIGTERM, 129 by SIGHUP, with a certificate
of what there was.`,
		Example: `  fabrictest certify --guest rxe --kernel 6.12 --deviations rxe-6.12 --out rxe-6.12/
  fabrictest certify mpa/fpdu --guest siw --kernel 6.1 --out fpdu/
  fabrictest certify --agent 192.0.2.7:7471 --key agent.key --device mlx5_0 --interface eth1 \
      --peer 198.51.100.20/24 --out certificate/
  fabrictest certify rc/psn --agent 192.0.2.7:7471 --key agent.key --device rxe0 --interface eth1 --out psn/
  fabrictest certify verify certificate/ --signers allowed_signers
  fabrictest certify compare rxe-6.1/ rxe-6.12/ --html matrix.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.IDs = args
			return o.run(cmd)
		},
		ValidArgsFunction: completeCases,
	}
	f := cmd.Flags()
	f.StringVar(&o.agent, "agent", "", "`HOST:PORT` of the agent")
	f.StringVar(&o.key, "key", "", "`FILE` with the agent's key")
	f.StringVar(&o.device, "device", "", "the device to judge, by the `NAME` that its host has for it")
	f.StringVar(&o.intf, "interface", "", "the network interface `NAME` here that the device's cable ends at")
	f.StringVar(&o.wire, "wire", "", "how the judge is there, `WIRE`: packet or udp for RoCEv2, tcp or segments for iWARP (default packet, and tcp)")
	f.StringSliceVar(&o.peers, "peer", nil, "the judge's address in a network of the device's, as `ADDR/LEN`; may be repeated")
	levelFlag(cmd, &o.level)
	labelFlag(cmd, &o.Labels)
	f.BoolVar(&o.IncludeDangerous, "dangerous", false, "also run cases that can crash or wedge the device, and restart it after each")
	seedFlag(cmd, &o.seed, "", "cases choose", " (default 1)")
	f.StringVar(&o.deviations, "deviations", "", "`FILE` with the known deviations of the device, or the name of those that come with fabrictest")
	f.StringVar(&o.sign, "sign", "", "sign with the SSH key in this `FILE`: a private one, or a public one whose private half an SSH agent has")
	f.StringVar(&o.out, "out", "", "`FOLDER` for the certificate, to be made")
	o.guest.flags(cmd)
	f.DurationVar(&o.caseTime, "case-time", 0, "how long a case may wait for one verb call before it counts as hung, and a tenth of what it may take in all (default 2m)")
	_ = cmd.RegisterFlagCompletionFunc("wire", fixed("packet", "udp", "tcp", "segments"))
	cmd.AddCommand(newCertifyVerifyCommand(), newCertifyCompareCommand())
	return cmd
}

// check returns an error for flags that are wrong or contradict each other.
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
		if need.value == "" && (o.guest.kind == "" || need.flag == "--out") {
			return cmdline.Errorf("%s: name %s", need.flag, need.what)
		}
	}
	for _, text := range o.peers {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return cmdline.Errorf("--peer %s: give an address and the length of its network's prefix, as in 198.51.100.20/24", text)
		}
		o.networks = append(o.networks, p)
	}
	if err := o.checkKey(); err != nil {
		return err
	}
	if known := slices.Concat(bench.DeviceWires(false), bench.DeviceWires(true)); o.wire != "" && !slices.Contains(known, bench.DeviceWire(o.wire)) {
		return cmdline.Errorf("--wire %s: give packet or udp for RoCEv2, tcp or segments for iWARP", o.wire)
	}
	var err error
	o.Level, err = judge.ParseLevel(o.level)
	return err
}

// checkKey returns an error if the certificate cannot be signed.
func (o *certifyOptions) checkKey() error {
	if o.sign == "" {
		return nil
	}
	if err := cmdline.CheckFile(o.sign); err != nil {
		return cmdline.Errorf("--sign: %w", err)
	}
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		return cmdline.Errorf("--sign: %w; install OpenSSH (Debian: apt install openssh-client)", err)
	}
	return nil
}

func (o *certifyOptions) run(cmd *cobra.Command) error {
	if err := o.check(cmd); err != nil {
		return err
	}
	seed, err := parseSeed(o.seed, 1)
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
	c, err := certify.New(o.options(cmd, seed), "")
	if err != nil {
		return err
	}
	run, err := c.Judge(cmd.Context(), client, o.agent, bench.DeviceOptions{Interface: o.intf, Peers: o.networks, Agent: o.agentAddr(), Redial: dial})
	if err != nil {
		return err
	}
	return o.finish(cmd, c, run)
}

// options returns the flags for package certify.
func (o *certifyOptions) options(cmd *cobra.Command, seed uint64) certify.Options {
	return certify.Options{
		Filter: o.Filter, Seed: seed, Deviations: o.deviations, CaseTime: o.caseTime, Wire: bench.DeviceWire(o.wire), Device: o.device,
		Command: func(ids []string) string { return o.command(ids, seed) },
		Folder:  func() (string, error) { return conformRuns.NewFolder(o.out, time.Now()) },
		Show: func(total int) *conform.Display {
			return conform.NewDisplay(report.DisplayConfig{Out: uncleaned(cmd.OutOrStdout()), Status: uncleaned(cmd.ErrOrStderr()), Total: total}, false)
		},
	}
}

// agentAddr returns the IP address of the agent; the zero address if it is unknown.
func (o *certifyOptions) agentAddr() netip.Addr {
	a, err := net.ResolveTCPAddr("tcp", o.agent)
	if err != nil {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap()
}

// finish writes the certificate, signs it and prints the results.
func (o *certifyOptions) finish(cmd *cobra.Command, c *certify.Certification, run *conform.Run) error {
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

// signIn signs the certificate in a folder, with --sign.
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

// command is the command line that runs these cases again.
func (o *certifyOptions) command(ids []string, seed uint64) string {
	l := cmdline.NewLine(o.guest.calledAs(o.program) + " certify").Args(ids...)
	if o.guest.kind != "" {
		l.Add(o.guest.words()...)
	} else {
		l.Flag("agent", o.agent).Flag("key", o.key).Flag("device", o.device).Flag("interface", o.intf).Flag("peer", o.peers...)
	}
	l.Flag("wire", o.wire).Flag("level", strings.ToLower(o.level)).Flag("label", o.Labels...).Switch("dangerous", o.IncludeDangerous)
	if o.caseTime != 0 {
		l.Flag("case-time", o.caseTime.String())
	}
	return l.Flag("deviations", o.deviations).Flag("seed", fmt.Sprint(seed)).Flag("out", "FOLDER").String()
}
