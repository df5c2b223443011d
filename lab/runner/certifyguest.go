package runner

import (
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// GuestProtocol returns the protocol of the devices of a guest.
func GuestProtocol(cfg kernel.Config) conformance.Protocol {
	if guest.NeedsSIW(cfg.Devices) {
		return conformance.IWARP
	}
	return conformance.RoCE
}

// JudgeGuest boots a guest on an empty network namespace, judges its device, and switches
// it off, so that its console output is complete. It prints progress to status. The
// folder is removed if the device could not be judged.
func (c *Certification) JudgeGuest(ctx context.Context, cfg kernel.Config, status io.Writer) (*conform.Run, error) {
	if err := c.makeFolder(); err != nil {
		return nil, err
	}
	run, err := c.judgeGuest(ctx, cfg, status)
	if err != nil {
		_ = os.Remove(filepath.Join(c.judge.Dir, kernel.ConsoleName(1)))
		_ = os.Remove(c.judge.Dir)
	}
	return run, err
}

// judgeGuest boots the guest, judges its device through an agent, and stops the guest.
func (c *Certification) judgeGuest(ctx context.Context, cfg kernel.Config, status io.Writer) (run *conform.Run, err error) {
	fmt.Fprintf(status, "Booting Linux %s with %s …\n", cfg.Image.Release, c.Device)
	cfg.Consoles = c.judge.Dir
	lab, err := kernel.UpInCurrentNamespace(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	fmt.Fprintf(status, "The guest is ready after %.1f s.\n", lab.Status()[0].BootSecs)
	g := kernel.NewAgentHost(lab)
	if GuestProtocol(cfg) == conformance.RoCE {
		g.Addresses = secondAddresses
	}
	client, err := g.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	c.machine = "a QEMU guest with " + howMade(cfg, lab.Accel())
	opt := bench.DeviceOptions{Interface: kernel.WireDevice, PartnerInterface: kernel.WireDevice, Host: g}
	if isRawWire(c.Wire, GuestProtocol(cfg)) {
		opt.Interface, opt.Peers = kernel.JudgeDevice, judgeNetworks
	}
	run, err = c.Judge(ctx, client, g.Addr, opt)
	if errors.Is(err, agent.ErrLost) { // before a case could report it
		err = errors.Join(err, g.Problem(err))
	}
	return run, err
}

// isRawWire reports whether the judge sends raw packets on a wire, as a host with addresses
// of its own.
func isRawWire(wire bench.DeviceWire, protocol conformance.Protocol) bool {
	switch wire {
	case bench.WirePackets, bench.WireSegments:
		return true
	case "":
		return protocol == conformance.RoCE
	}
	return false
}

// judgeNetworks are the judge's addresses on a raw wire.
var judgeNetworks = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::fab"), guest.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.200"), guest.WireHost4.Bits()),
}

// secondAddresses are added to the guest: some cases need devices with several addresses.
var secondAddresses = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::2:11"), guest.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.111"), guest.WireHost4.Bits()),
}

// howMade describes the virtual machine of a guest.
func howMade(cfg kernel.Config, accel kernel.Accel) string {
	how := "emulated (TCG)"
	if accel == kernel.KVM {
		how = "the machine's own (KVM)"
	}
	if cfg.ICount {
		how += ", its time counted in instructions"
	}
	return fmt.Sprintf("%s, %s, and %d MiB", textfmt.Plural(cfg.CPUs, "processor"), how, cfg.Memory)
}

// IbverbsTag is the build tag of programs with libibverbs.
const IbverbsTag = "ibverbs"

const howToBuildAgent = "on Linux, with gcc and the packages libibverbs-dev and librdmacm-dev: go build -tags " + IbverbsTag + " -o fabrictest-agent ./cmd/fabrictest, " +
	"and call that program, or name it with --agent-program"

// CheckAgentProgram returns an error if a program cannot be the agent in a guest, because it
// was built without libibverbs. An empty name is this program.
func CheckAgentProgram(program string) error {
	if program == "" {
		if ibv.Linked {
			return nil
		}
		return cmdline.Errorf("this program was built without libibverbs, and cannot drive the device in the guest. Build one that can, %s", howToBuildAgent)
	}
	if err := cmdline.CheckFile(program); err != nil {
		return cmdline.Errorf("--agent-program: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return cmdline.Errorf("--agent-program %s: it is no program that Go has built: %w", program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && slices.Contains(strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' }), IbverbsTag) {
			return nil
		}
	}
	return cmdline.Errorf("--agent-program %s was built without libibverbs. Build one with it, %s", program, howToBuildAgent)
}
