package main

import (
	"cmp"
	"debug/buildinfo"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance/suites"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/regularfile"
	"github.com/fabrictest/fabrictest/internal/units"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/kernel/image"
	"github.com/fabrictest/fabrictest/report/certificate"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// guestKinds are the devices that a guest can have to be judged.
var guestKinds = []string{string(guest.RXE), string(guest.SIW), string(guest.SIWCRC)}

// guestSubject is a device in a virtual machine that is there to be judged only.
type guestSubject struct {
	imageFlags
	kind    string // of the device; empty if none was asked for
	program string // with the agent
	cfg     kernel.Config
	accel   string
	given   []string // the flags of it that were, but for the first two
}

// guestMemory is enough for a case that registers a GiB, of which the agent has a copy.
const guestMemory = 3072

// guestKernelArgs are the words that every guest's kernel command line begins with. The
// kernel's warnings are evidence. It does not clear pages before it hands them out, which
// would hide the stale memory that rxe sends.
const guestKernelArgs = "loglevel=5 init_on_alloc=0"

// guestMTU is what devices can use all of: packets of 4096 octets of data, with headers.
const guestMTU = 9000

func (g *guestSubject) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&g.kind, "guest", "", "judge a Linux kernel's own device, in a virtual machine booted for it: `KIND` rxe, siw or siw-crc")
	g.imageFlags.flags(cmd)
	f.StringVar(&g.program, "agent-program", "", "`FILE` with a fabrictest that was built with -tags ibverbs, for the guest (default: this one)")
	f.IntVar(&g.cfg.MTU, "mtu", guestMTU, "largest IP packet on the guest's wire")
	f.IntVar(&g.cfg.Memory, "memory", guestMemory, "MiB of the guest, of which it uses what it touches")
	f.IntVar(&g.cfg.CPUs, "cpus", 1, "processors of the guest")
	f.StringVar(&g.cfg.KernelArgs, "append", "", "`WORDS` for the guest's kernel's command line")
	f.StringVar(&g.accel, "accel", "auto", "how the guest's processors are made: kvm, tcg (emulated), or auto: kvm where it works")
	f.BoolVar(&g.cfg.ICount, "count-instructions", false, "have time pass in the guest by a nanosecond an instruction, however slow this machine is")
	_ = cmd.RegisterFlagCompletionFunc("guest", fixed(guestKinds...))
	_ = cmd.RegisterFlagCompletionFunc("accel", fixed("auto", "kvm", "tcg"))
}

// guestFlagNames are those that only a guest has, but for the first two, which every command
// line of one names.
var guestFlagNames = []string{"agent-program", "mtu", "memory", "cpus", "append", "accel", "count-instructions", "cache", "debs", "mirror"}

// check refuses what makes no sense by itself, or with what else was asked for.
func (g *guestSubject) check(cmd *cobra.Command) error {
	others := []string{"agent", "key", "device", "interface", "peer"}
	if g.kind == "" {
		others = append([]string{"kernel"}, guestFlagNames...)
	}
	for _, name := range others {
		switch {
		case !cmd.Flags().Changed(name):
		case g.kind == "":
			return cmdline.Errorf("--%s is about a guest: name the device that it is to have, as in --guest rxe", name)
		default:
			return cmdline.Errorf("--%s is about a device that is there already, and --guest boots one that needs nothing else", name)
		}
	}
	if g.kind == "" {
		return nil
	}
	if !slices.Contains(guestKinds, g.kind) {
		return cmdline.Errorf("--guest %s: a kernel has %s", g.kind, cmdline.Choices(guestKinds))
	}
	if g.cfg.Accel = kernel.Accel(g.accel); g.accel == "auto" {
		g.cfg.Accel = kernel.Auto
	}
	g.cfg.Guests, g.cfg.Devices = 1, []guest.Device{guest.Device(g.kind)}
	g.given = givenFlags(cmd, guestFlagNames)
	return g.checkProgram()
}

// givenFlags are those of some names that were given, as words for another command line.
func givenFlags(cmd *cobra.Command, names []string) (words []string) {
	for _, name := range names {
		f := cmd.Flags().Lookup(name)
		if !f.Changed {
			continue
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if f.Value.Type() == "bool" {
				words = append(words, "--"+name+"="+v)
			} else {
				words = append(words, "--"+name+" "+cmdline.Quote(v))
			}
		}
	}
	return words
}

// ibverbsTag is what programs for guests are built with.
const ibverbsTag = "ibverbs"

// goRunIbverbs is how the program is called in a checkout, to be the agent too.
const goRunIbverbs = "go run -tags " + ibverbsTag + " ./cmd/fabrictest"

const howToBuildAgent = "on Linux, with gcc and the packages libibverbs-dev and librdmacm-dev: go build -tags " + ibverbsTag + " -o fabrictest-agent ./cmd/fabrictest, " +
	"and call that program, or name it with --agent-program"

// checkProgram says that there is none that could drive devices in a guest.
func (g *guestSubject) checkProgram() error {
	if g.program == "" {
		if ibv.Linked {
			return nil
		}
		return cmdline.Errorf("this program was built without libibverbs, and cannot drive the device in the guest. Build one that can, %s", howToBuildAgent)
	}
	if err := regularfile.Check(g.program); err != nil {
		return cmdline.Errorf("--agent-program: %w", err)
	}
	info, err := buildinfo.ReadFile(g.program)
	if err != nil {
		return cmdline.Errorf("--agent-program %s: it is no program that Go has built: %w", g.program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && slices.Contains(strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' }), ibverbsTag) {
			return nil
		}
	}
	return cmdline.Errorf("--agent-program %s was built without libibverbs. Build one with it, %s", g.program, howToBuildAgent)
}

// protocol is what the device will talk.
func (g *guestSubject) protocol() suites.Protocol {
	if guest.NeedsSIW(g.cfg.Devices) {
		return suites.IWARP
	}
	return suites.RoCE
}

// config finds the image, or makes it, and is the guest to be.
func (g *guestSubject) config(cmd *cobra.Command) (kernel.Config, error) {
	if err := g.prepare(cmd); err != nil {
		return kernel.Config{}, err
	}
	if err := kernel.Check(); err != nil {
		return kernel.Config{}, err
	}
	cfg := g.cfg
	cfg.Program = g.program
	cfg.KernelArgs = strings.TrimSpace(guestKernelArgs + " " + cfg.KernelArgs)
	var err error
	if cfg.Image, err = g.cache.Ensure(cmd.Context(), image.Series(g.series), guest.NeedsSIW(cfg.Devices)); err != nil {
		return cfg, err
	}
	if err := cfg.Check(); err != nil {
		return cfg, cmdline.Errorf("--guest %s: %w", g.kind, err)
	}
	return cfg, nil
}

// calledAs is how to call a program that can be the agent in the guest.
func (g *guestSubject) calledAs(program string) string {
	if program == goRun && g.kind != "" && g.program == "" {
		return goRunIbverbs
	}
	return program
}

// words are those of a command line that has the same guest.
func (g *guestSubject) words() []string {
	return append([]string{"--guest " + g.kind, "--kernel " + g.series}, g.given...)
}

// runGuest boots a guest with a device, judges that, and switches it off. All of it takes
// place in an enclosure, a process in namespaces of its own, which ends with this one.
func (o *certifyOptions) runGuest(cmd *cobra.Command, seed uint64) error {
	o.device = o.guest.cfg.Devices[0].Name()
	c := &certification{opts: o, seed: seed}
	if err := c.plan(o.guest.protocol()); err != nil {
		return err // before anything is booted
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
		return c.inGuest(cmd, cfg)
	}
	if err := o.checkOut(); err != nil {
		return err
	}
	// What is signed is signed out here, where ssh-keygen can ask for a passphrase.
	err = enclosed(cmd, append([]string{"--sign="}, o.IDs...), o.out)
	if _, none := os.Stat(filepath.Join(o.out, certificate.File)); none != nil {
		return err
	}
	return cmp.Or(o.signIn(cmd, o.out), err)
}

// checkOut says that the folder cannot be one for a certificate, before a guest is booted.
func (o *certifyOptions) checkOut() error {
	_, before := os.Stat(o.out)
	if _, err := conformRuns.NewFolder(o.out, time.Now()); err != nil {
		return err
	}
	if errors.Is(before, os.ErrNotExist) {
		return os.Remove(o.out)
	}
	return nil
}

// inGuest is the enclosed part of it. The guest is off before the certificate is written,
// of which what it has printed is a part.
func (c *certification) inGuest(cmd *cobra.Command, cfg kernel.Config) error {
	var err error
	if c.judgement.dir, err = conformRuns.NewFolder(c.opts.out, time.Now()); err != nil {
		return err
	}
	run, err := c.judgeGuest(cmd, cfg)
	if err != nil {
		// Nobody looks for anything in the folder of what came to nothing.
		_ = os.Remove(filepath.Join(c.judgement.dir, kernel.ConsoleName(1)))
		_ = os.Remove(c.judgement.dir)
		return err
	}
	return c.finish(cmd, run)
}

// judgeGuest boots a guest, judges its device, and switches it off.
func (c *certification) judgeGuest(cmd *cobra.Command, cfg kernel.Config) (run *conform.Run, err error) {
	o := c.opts
	tell := func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
	tell("Booting Linux %s with %s …", cfg.Image.Release, o.device)
	cfg.Consoles = c.judgement.dir
	lab, err := kernel.UpInCurrentNamespace(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	tell("The guest is ready after %.1f s.", lab.Status()[0].BootSecs)
	g := kernel.NewAgentHost(lab)
	if o.guest.protocol() == suites.RoCE {
		g.Addresses = secondAddresses
	}
	client, err := g.Start(cmd.Context())
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	c.machine = "a QEMU guest with " + howMade(cfg, lab.Accel())
	o.agent, o.intf = g.Addr, kernel.WireDevice
	if o.guest.rawWire(o.wire) {
		o.intf, o.networks = kernel.JudgeDevice, judgeNetworks
	}
	run, err = c.judged(cmd, client, bench.DeviceOptions{Interface: o.intf, Peers: o.networks, PartnerInterface: kernel.WireDevice, Host: g})
	if errors.Is(err, agent.ErrLost) { // before any case could tell of it
		err = errors.Join(err, g.Problem(err))
	}
	return run, err
}

// rawWire reports whether the judge is a host of its own on this wire, and not a program
// on one.
func (g *guestSubject) rawWire(name string) bool {
	switch bench.DeviceWire(name) {
	case bench.WirePackets, bench.WireSegments:
		return true
	case "":
		return g.protocol() == suites.RoCE
	}
	return false
}

// judgeNetworks are where the judge is in a guest's networks, as a host of its own.
var judgeNetworks = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::fab"), guest.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.200"), guest.WireHost4.Bits()),
}

// secondAddresses are a guest's besides those that it comes with: some cases are about
// devices that have more than one.
var secondAddresses = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::2:11"), guest.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.111"), guest.WireHost4.Bits()),
}

// howMade is what a guest's machine is.
func howMade(cfg kernel.Config, accel kernel.Accel) string {
	how := "emulated (TCG)"
	if accel == kernel.KVM {
		how = "the machine's own (KVM)"
	}
	if cfg.ICount {
		how += ", its time counted in instructions"
	}
	return fmt.Sprintf("%s, %s, and %d MiB", units.Plural(cfg.CPUs, "processor"), how, cfg.Memory)
}
