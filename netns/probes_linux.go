package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const vethName = "veth"

// runProbe runs the probes in new namespaces and prints the results as JSON.
// The kernel removes the interfaces with the namespace.
func runProbe() int {
	mountProc() // as runInit does: it may make /proc/sys writable
	found := make([]Capability, 0, len(probes))
	for _, p := range probes {
		c := Capability{Name: p.name, For: p.use, State: Yes}
		if err := p.do(); err != nil {
			c.State, c.Reason, c.Cure = No, err.Error(), p.cure
			if errors.Is(err, fs.ErrPermission) && p.allow != "" {
				c.Cure = p.allow // available but not permitted
			}
		}
		found = append(found, c)
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

const fullKernel = "use a kernel that has it: distributions' do, those for virtual machines may not"

// probes run in this order: later probes use the interfaces of earlier ones.
var probes = []struct {
	name, use, cure string
	do              func() error
	allow           string // the cure if it is available but not permitted
}{
	{vethName, "cables", fullKernel + " (CONFIG_VETH, modprobe veth)", tryVeth, ""},
	{"bridge", "switches of the kernel", fullKernel + " (CONFIG_BRIDGE, modprobe bridge)", tryBridge, ""},
	{"IPv6", "the addresses that RoCE is run on by default", "boot without ipv6.disable=1", tryIPv6, ""},
	{
		"routing", "fat trees, whose leaves and spines are routers",
		"start the container with --security-opt systempaths=unconfined", func() error { return writeSysctls(routerSysctls) }, "",
	},
	{"packet sockets", "the user-space switch and captures", fullKernel + " (CONFIG_PACKET)", tryPacketSocket, ""},
	{
		"tun", "stacks that bring their own packets", fullKernel + " (CONFIG_TUN, modprobe tun, /dev/net/tun)", tryTun,
		"let this user open it: chmod a+rw /dev/net/tun, as root; in a container pass it in with --device /dev/net/tun",
	},
	{
		"tbf", "rate limits on cables that the kernel joins", fullKernel + " (CONFIG_NET_SCH_TBF, modprobe sch_tbf)",
		func() error { return tryQdisc(qdisc{rateBps: 1e9}) }, "",
	},
	{
		"blackhole", "cutting the cable of a pair", fullKernel + " (CONFIG_NET_SCHED)",
		func() error { return tryQdisc(qdisc{blackhole: true}) }, "",
	},
	{
		"netem", "impairment by the kernel; the user-space switch does without", fullKernel + " (CONFIG_NET_SCH_NETEM, modprobe sch_netem)",
		func() error { return tryQdisc(qdisc{netem: NetemSpec{LossPPM: 1}}) }, "",
	},
}

const probeDevice = "probe0"

// tryVeth creates a veth pair, and returns why that fails.
func tryVeth() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = probeDevice
	return explainUnsupported(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe1"}))
}

// tryBridge creates a bridge, and returns why that fails.
func tryBridge() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probebr"
	return explainUnsupported(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
}

// explainUnsupported returns a plain text for EOPNOTSUPP, and other errors unchanged.
func explainUnsupported(err error) error {
	if errors.Is(err, unix.EOPNOTSUPP) {
		return errors.New("this kernel does not have it")
	}
	return err
}

// tryIPv6 adds an IPv6 address to the loopback interface, and returns why that fails.
func tryIPv6() error {
	lo, err := netlink.LinkByIndex(loopbackIndex)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr("fd00:fab::1/128")
	if err != nil {
		return err
	}
	return explainUnsupported(netlink.AddrAdd(lo, addr))
}

// tryPacketSocket opens a packet socket, and returns why that fails.
func tryPacketSocket() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open one: %w", err)
	}
	return unix.Close(fd)
}

// tryTun creates a TAP interface, and returns why that fails.
func tryTun() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("probetun")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return fmt.Errorf("make an interface: %w", err)
	}
	return nil
}

// tryQdisc sets a qdisc on the interface that tryVeth has created.
func tryQdisc(q qdisc) error {
	link, err := netlink.LinkByName(probeDevice)
	if err != nil {
		return fmt.Errorf("no interface to try it on: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	a := link.Attrs()
	d := &device{namespace: &namespace{ns: &NS{handle: h}}, name: a.Name, index: a.Index, mtu: a.MTU, qdisc: q}
	return d.applyQdisc()
}
