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
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/lab/bench"
	"github.com/fabrictest/fabrictest/lab/kernel"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// GuestProtocol returns the protocol of a guest's devices: iWARP if one of them is siw, else RoCE.
func GuestProtocol(cfg kernel.Config) conformance.Protocol {
	if kernel.NeedsSIW(cfg.Devices) {
		return conformance.IWARP
	}
	return conformance.RoCE
}

// TestGuest boots a guest (a virtual machine) in the current network namespace, which must be
// empty, tests its device, and shuts the guest down, so that its console log is complete. It prints
// progress to status. If the test fails to run, it removes the folder of the certificate.
func (c *Certification) TestGuest(ctx context.Context, cfg kernel.Config, status io.Writer) (*conform.Run, error) {
	if err := c.ensureFolder(); err != nil {
		return nil, err
	}
	run, err := c.testGuest(ctx, cfg, status)
	if err != nil {
		_ = os.Remove(filepath.Join(c.judge.Dir, kernel.ConsoleName(1)))
		_ = os.Remove(c.judge.Dir)
	}
	return run, err
}

// testGuest boots the guest, tests its device through an agent, a program in the guest that calls
// verbs for this one, and stops the guest.
func (c *Certification) testGuest(ctx context.Context, cfg kernel.Config, status io.Writer) (run *conform.Run, err error) {
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
		g.Addresses = secondAddresses // some cases need devices with several addresses
	}
	client, err := g.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer g.Stop()
	c.machine = "a QEMU guest with " + describeMachine(cfg, lab.Accel)
	opt := bench.DeviceOptions{Interface: kernel.WireDevice, PartnerInterface: kernel.WireDevice, Host: g}
	if isRawWire(c.Wire, GuestProtocol(cfg)) { // this program is a host of its own on the link
		opt.Interface, opt.Peers = kernel.JudgeDevice, judgeAddresses
	}
	run, err = c.TestDevice(ctx, client, g.Addr, opt)
	if errors.Is(err, agent.ErrLost) { // before the first case; later the results report it
		err = errors.Join(err, g.Problem(err))
	}
	return run, err
}

// isRawWire reports whether wire, a value of --wire, makes fabrictest send packets on a raw socket,
// as a host with addresses other than the kernel's. An empty wire depends on the protocol.
func isRawWire(wire bench.DeviceWire, protocol conformance.Protocol) bool {
	switch wire {
	case bench.WirePackets, bench.WireSegments:
		return true
	case "":
		return protocol == conformance.RoCE
	}
	return false
}

// judgeAddresses are the judge's addresses on a raw wire.
var judgeAddresses = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::fab"), kernel.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.200"), kernel.WireHost4.Bits()),
}

// secondAddresses are added to the guest.
var secondAddresses = []netip.Prefix{
	netip.PrefixFrom(netip.MustParseAddr("fd77::2:11"), kernel.WireHost6.Bits()),
	netip.PrefixFrom(netip.MustParseAddr("10.77.0.111"), kernel.WireHost4.Bits()),
}

// describeMachine returns a text about the virtual machine of a guest: the number of processors,
// whether KVM or TCG runs them, whether its clock counts instructions, and the memory.
func describeMachine(cfg kernel.Config, accel kernel.Accel) string {
	processors := "emulated (TCG)"
	if accel == kernel.KVM {
		processors = "the machine's own (KVM)"
	}
	if cfg.ICount {
		processors += ", its time counted in instructions"
	}
	return fmt.Sprintf("%s, %s, and %d MiB", cli.Plural(cfg.CPUs, "processor"), processors, cfg.Memory)
}

// IbverbsTag is the build tag of programs with libibverbs.
const IbverbsTag = "ibverbs"

const howToBuildAgent = "on Linux, with gcc and the packages libibverbs-dev and librdmacm-dev: go build -tags " + IbverbsTag + " -o fabrictest-agent ./cmd/fabrictest, " +
	"and call that program, or name it with --agent-program"

// CheckAgentProgram returns an error if a program was built without libibverbs, with which the
// agent in a guest drives the device. An empty name stands for this program.
func CheckAgentProgram(program string) error {
	if program == "" {
		if ibv.Linked {
			return nil
		}
		return cli.Errorf("this program was built without libibverbs, and cannot drive the device in the guest. Build one that can, %s", howToBuildAgent)
	}
	if err := cli.CheckFile(program); err != nil {
		return cli.Errorf("--agent-program: %w", err)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return cli.Errorf("--agent-program %s: not a program built by Go: %w", program, err)
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" && slices.Contains(strings.FieldsFunc(s.Value, func(r rune) bool { return r == ',' || r == ' ' }), IbverbsTag) {
			return nil
		}
	}
	return cli.Errorf("--agent-program %s was built without libibverbs. Build one with it, %s", program, howToBuildAgent)
}
