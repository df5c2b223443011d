package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fabrictest/fabrictest/conformance/interop"
	iwarpprograms "github.com/fabrictest/fabrictest/conformance/kernel"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/verbs"
)

// interopVerbs is `fabrictest interop verbs`.
type interopVerbs struct {
	guest       guestFlagSet
	loss        string
	impair      string
	seed        uint64
	connections int
	patience    time.Duration
	out         string
	list        bool
	patterns    []string
	program     string // how we were called
}

func newInteropVerbsCommand(program string) *cobra.Command {
	return newInteropVerbsCommandOf(&interopVerbs{program: program})
}

func newInteropVerbsCommandOf(o *interopVerbs) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verbs [PATTERN...] --guest KIND",
		Short: "Exchange every operation with a kernel's own device in a guest, and check every byte",
		Long: `Boot a guest with the kernel's own soft-RoCE (rxe) or soft-iWARP (siw), and have it and
our device work together: each operation that both have, asked for by either end, at
sizes around a packet's, over IPv4 and IPv6, connected by hand and by the connection
manager, whoever connects. Both ends are driven over verbs, the guest's through an agent
within. Every completion and every byte is checked.

PATTERN selects exchanges by name, operation/side/method/family/size, with * for any part and
the rest left out: write, 'read/theirs', 'send/*/cm-ours/ipv6', ud-send/ours/hand/ipv4/0.

--loss loses packets both ways, by the user-space switch between the two; --impair does
anything else that 'lab kernel set' can. With --connections, that many connections are
made after that, used and closed, one after the other, and the objects on both ends are
counted before and after.

The exit code is 0 if everything passed, or failed as it is known to; 1 if not.`,
		Example: `  fabrictest interop verbs --guest rxe --kernel 6.12
  fabrictest interop verbs --guest siw --kernel 6.1 --loss 5%
  fabrictest interop verbs none --guest rxe --connections 1000
  fabrictest interop verbs write/theirs/hand/ipv6/4097 --guest rxe --impair 'loss=5% reorder=1% reorder_delay=1ms'`,
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
	f.StringVar(&o.impair, "impair", "", "`WORDS` for what else packets meet, as in 'lab kernel set'")
	f.Uint64Var(&o.seed, "seed", 1, "of what packets meet")
	f.IntVar(&o.connections, "connections", 0, "`N` connections to make one after the other")
	f.DurationVar(&o.patience, "timeout", 0, "how long a completion or a connection may take (default 30s, and 2m where packets are impaired)")
	f.StringVar(&o.out, "out", "", "`FILE` for the results, in JSON")
	f.BoolVar(&o.list, "list", false, "print the exchanges' names and run none")
	return cmd
}

// timeout is how long a completion or a connection may take. Connections by the
// connection manager wait long before they send again.
func (o *interopVerbs) timeout() time.Duration {
	switch {
	case o.patience != 0:
		return o.patience
	case !o.guest.cfg.Impair.Empty():
		return 2 * time.Minute
	}
	return 30 * time.Second
}

// noExchanges is a pattern of none: connections only.
const noExchanges = "none"

func (o *interopVerbs) run(cmd *cobra.Command, args []string) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.list {
		cases, err := o.chosen(verbs.MTU4096.Bytes())
		for _, c := range cases {
			fmt.Fprintln(cmd.OutOrStdout(), c.Name())
		}
		return err
	}
	if err := o.guest.check(cmd); err != nil {
		return err
	}
	cfg, err := o.guest.config(cmd) // outside: there is no network within to fetch packages from
	if err != nil {
		return err
	}
	inside, err := kernel.IsEmptyNamespace()
	switch {
	case err != nil:
		return err
	case inside:
		return o.inside(cmd, cfg)
	}
	return runUnshared(cmd, args, o.out)
}

// check refuses what makes no sense, before anything is booted.
func (o *interopVerbs) check() error {
	switch {
	case o.guest.kind == "":
		return cmdline.Errorf("--guest: name the device that the guest is to have: %s", cmdline.Choices(guestKinds))
	case !slices.Contains(guestKinds, o.guest.kind):
		return cmdline.Errorf("--guest %s: a kernel has %s", o.guest.kind, cmdline.Choices(guestKinds))
	case o.connections < 0:
		return cmdline.Errorf("--connections %d: give how many", o.connections)
	}
	words := o.impair
	if o.loss != "" {
		words += " loss=" + o.loss
	}
	var err error
	if o.guest.cfg.Impair, err = kernel.ParseImpairFlag(words); err != nil {
		return err
	}
	o.guest.cfg.Seed = o.seed
	// As they would be; the packets' size is known when the devices are.
	if _, err := o.chosen(verbs.MTU4096.Bytes()); err != nil {
		return &cmdline.Error{Err: err}
	}
	return nil
}

func (o *interopVerbs) transport() verbs.Transport {
	if o.guest.kind == string(guest.RXE) {
		return verbs.TransportIB
	}
	return verbs.TransportIWARP
}

// iwarpHeaders is what IPv4, TCP with a time stamp, MPA and a tagged DDP segment take.
const iwarpHeaders = 72

// packet is how much data one carries.
func (o *interopVerbs) packet(ofInfiniBand int) int {
	if o.transport() == verbs.TransportIWARP {
		return o.guest.cfg.MTU - iwarpHeaders
	}
	return ofInfiniBand
}

// chosen are the exchanges that any of the patterns matches, in their own order.
func (o *interopVerbs) chosen(packet int) (cases []interop.Case, err error) {
	if slices.Equal(o.patterns, []string{noExchanges}) {
		return nil, nil
	}
	all := interop.Cases(o.transport(), o.packet(packet))
	wanted := make(map[interop.Case]bool)
	for _, pattern := range o.patterns {
		some, err := interop.Matching(all, pattern)
		if err != nil {
			return nil, err
		}
		for _, c := range some {
			wanted[c] = true
		}
	}
	return slices.DeleteFunc(all, func(c interop.Case) bool { return !wanted[c] }), nil
}

// inside is the enclosed part: with the guest's network as our own.
func (o *interopVerbs) inside(cmd *cobra.Command, cfg kernel.Config) (err error) {
	lab, err := kernel.UpInCurrentNamespace(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	g := kernel.NewAgentHost(lab)
	client, err := g.Start(cmd.Context())
	if err != nil {
		return err
	}
	defer g.Stop()
	defer client.Close()
	name := cfg.Devices[0].Name()
	theirs, err := client.Open(name)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer theirs.Close()
	ours, err := o.ours()
	defer func() {
		for _, dev := range ours.Devices {
			dev.Close()
		}
	}()
	if err != nil {
		return err
	}
	at := lab.Guests()[0]
	s := &interop.Suite{
		Ours: ours,
		Theirs: &interop.End{
			Name:    fmt.Sprintf("%s of Linux %s", o.guest.kind, cfg.Image.Release),
			Devices: map[interop.Family]verbs.Context{interop.IPv4: theirs, interop.IPv6: theirs},
			Addrs:   map[interop.Family]netip.Addr{interop.IPv4: at.IPv4, interop.IPv6: at.IPv6},
			Lacks:   kernelLacks(o.transport()),
			Objects: func(ctx context.Context) (map[string]int, error) { return guestObjects(ctx, lab, name) },
		},
		Lossy: !cfg.Impair.Empty(), Timeout: o.timeout(), Exceptions: kernelExceptions(o.guest.kind, !cfg.Impair.Empty()),
	}
	r := newInteropReport(cmd.OutOrStdout(), s, o)
	s.OnResult = r.add
	packet, err := s.PacketPayload()
	if err != nil {
		return err
	}
	cases, err := o.chosen(packet)
	if err != nil {
		return err
	}
	_, err = s.Run(cmd.Context(), cases)
	r.endExchanges()
	if text, _, lost := lab.ConsoleSince(1, 0); err != nil && lost == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "The guest printed:\n%s\n", text)
	}
	if err == nil && o.connections > 0 {
		r.Connections, err = s.RunConnections(cmd.Context(), o.connections, func(done int) {
			if done%100 == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%d connections …\n", done)
			}
		})
		r.tellConnections()
	}
	r.Link = lab.Status()[0].Link
	r.tellLink()
	if err == nil && o.out != "" {
		err = r.write(o.out)
	}
	if err == nil && !r.ok() {
		return errFailed
	}
	return err
}

// ours are our devices, one at each of our addresses.
func (o *interopVerbs) ours() (*interop.End, error) {
	provider := iwarpprograms.SoftRoCE
	if o.transport() == verbs.TransportIWARP {
		provider = iwarpprograms.SoftIWARP
	}
	e := &interop.End{
		Name: string(provider), Devices: make(map[interop.Family]verbs.Context),
		Addrs:   map[interop.Family]netip.Addr{interop.IPv4: kernel.HostIPv4, interop.IPv6: kernel.HostIPv6},
		Objects: func(context.Context) (map[string]int, error) { return ownObjects() },
	}
	for family, addr := range e.Addrs {
		dev, err := openDevice(provider, iwarpprograms.Setup{Local: addr, CRC: o.guest.kind == string(guest.SIWCRC)})
		if err != nil {
			return e, fmt.Errorf("%s at %v: %w", provider, addr, err)
		}
		e.Devices[family] = dev
	}
	return e, nil
}
