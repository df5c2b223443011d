package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/netns"
)

const tunDevice = "/dev/net/tun"

const ipv6On, ipv6Off = true, false // for setIPv6

// checkTun returns an error if tap devices cannot be created.
func checkTun() error {
	f, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err == nil {
		return f.Close()
	}
	e := &MissingError{Missing: []string{tunDevice}, Purpose: "tap devices (" + err.Error() + ")"}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Install = "modprobe tun (as root); in a container, start it with --device " + tunDevice
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		e.Install = "modprobe tun (as root), on a kernel that has it"
	default:
		e.Install = "chmod 666 " + tunDevice + " (as root), or run as root"
	}
	return e
}

// createLinks creates the bridge, its port for the program that tests the guests (the judge), and
// the tap devices of the guests, in the namespace of the calling thread.
func createLinks(c Config) error {
	err := inOrder(func() error { return createBridge(c.MTU) }, func() error { return createJudgePort(c.MTU) })
	for id := 1; id <= c.Guests && err == nil; id++ {
		err = inOrder(
			func() error { return createWireTap(id, c.MTU) },
			func() error { return createControlLink(id) })
	}
	return err
}

// configure runs the steps that configure an interface up to the first error.
func configure(name string, steps ...func() error) error {
	if err := inOrder(steps...); err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	return nil
}

// createBridge creates the bridge of the wire, with the lab's addresses.
func createBridge(mtu int) error {
	no := false
	bridge := &netlink.Bridge{LinkAttrs: linkAttrs(WireDevice, mtu), MulticastSnooping: &no}
	// A bridge without a fixed address takes that of a port, which changes when ports
	// move to a switch. Guests would keep the old address.
	bridge.HardwareAddr = parseMAC(WireHostMAC)
	return configure(WireDevice,
		func() error { return netlink.LinkAdd(bridge) },
		func() error { return setIPv6(WireDevice, ipv6On) },
		func() error { return addAddr(bridge, WireHost4) },
		func() error { return addAddr(bridge, WireHost6) },
		func() error { return netlink.LinkSetUp(bridge) })
}

// parseMAC parses an Ethernet address of a guest or the lab, which is valid.
func parseMAC(text string) net.HardwareAddr {
	mac, err := net.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return mac
}

// createJudgePort creates a port of the bridge for the packet sockets of a judge, which tests the
// guests' devices. The kernel sends nothing there: no ARP, no IPv6.
func createJudgePort(mtu int) error {
	pair := &netlink.Veth{LinkAttrs: linkAttrs(judgePort, mtu), PeerName: JudgeDevice}
	var judge netlink.Link
	return configure(JudgeDevice,
		func() error { return netlink.LinkAdd(pair) },
		func() (err error) { judge, err = netlink.LinkByName(JudgeDevice); return err },
		func() error { return netlink.LinkSetMTU(judge, mtu) },
		func() error { return netlink.LinkSetARPOff(judge) },
		func() error { return setIPv6(JudgeDevice, ipv6Off) },
		func() error { return netlink.LinkSetUp(judge) },
		func() error { return addToBridge(pair, WireDevice) })
}

// createWireTap creates the tap device of a guest on the bridge.
func createWireTap(id, mtu int) error {
	tap := newTap(wirePort(id), mtu)
	return configure(wirePort(id),
		func() error { return addTap(tap) },
		func() error { return netlink.LinkSetMTU(tap, mtu) },
		func() error { return addToBridge(tap, WireDevice) })
}

// createControlLink creates the tap device on which the lab reaches a guest, with a static
// neighbour entry: the kernel would remember a failed ARP request to a guest that was off.
func createControlLink(id int) error {
	tap := newTap(controlPort(id), defaultMTU)
	return configure(controlPort(id),
		func() error { return addTap(tap) },
		func() error { return addAddr(tap, ControlHostAddr(id)) },
		func() error { return netlink.LinkSetUp(tap) },
		func() error {
			return netlink.NeighSet(&netlink.Neigh{
				LinkIndex: tap.Index, State: netlink.NUD_PERMANENT, IP: ControlAddr(id).Addr().AsSlice(), HardwareAddr: parseMAC(ControlMAC(id)),
			})
		})
}

// newTap returns the description of a tap device, which QEMU opens by its name. QEMU requires these
// flags: a virtio header before each frame, and no packet information.
func newTap(name string, mtu int) *netlink.Tuntap {
	return &netlink.Tuntap{
		LinkAttrs: linkAttrs(name, mtu), Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	}
}

// addTap creates a tap device without IPv6.
func addTap(tap *netlink.Tuntap) error {
	const queueLen = 10000 // guests are slow: a short queue would drop packets
	return inOrder(
		func() error { return netlink.LinkAdd(tap) },
		func() error { return netlink.LinkSetTxQLen(tap, queueLen) },
		func() error { return setIPv6(tap.Name, ipv6Off) })
}

// addToBridge adds an interface to a bridge, disables its IPv6, and sets it up.
func addToBridge(l netlink.Link, bridge string) error {
	var master netlink.Link
	return inOrder(
		func() error { return setIPv6(l.Attrs().Name, ipv6Off) },
		func() (err error) { master, err = netlink.LinkByName(bridge); return err },
		func() error { return netlink.LinkSetMaster(l, master) },
		func() error { return netlink.LinkSetUp(l) })
}

// defaultMTU as an MTU leaves that of the kernel.
const defaultMTU = 0

// linkAttrs returns the attributes of a new interface.
func linkAttrs(name string, mtu int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, mtu
	return a
}

// addAddr adds an address, which is usable at once: without duplicate address detection.
func addAddr(l netlink.Link, a netip.Prefix) error {
	addr := netlinkAddr(a)
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("address %v: %w", a, err)
	}
	return nil
}

// setIPv6 enables or disables IPv6 on an interface. Disabling never fails: there may be no IPv6.
func setIPv6(device string, on bool) error {
	value := "1"
	if on {
		value = "0"
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte(value), 0)
	if err != nil && on {
		return fmt.Errorf("this kernel has no IPv6, or it cannot be enabled: %w", err)
	}
	return nil
}

// newLabNamespace creates a network namespace with the bridge and tap devices of c.
func newLabNamespace(c Config) (netNamespace, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := ns.Do(func() error { return createLinks(c) }); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}

// netNamespace is the network namespace with the bridge and tap devices of a lab.
type netNamespace interface {
	// Do runs fn in the namespace. Start starts a process in it, killed when this process ends.
	Do(fn func() error) error
	Start(cmd *exec.Cmd) error
	// Close kills the started processes and removes the namespace.
	Close() error
}

// currentNamespace is the network namespace of this process.
type currentNamespace struct{}

// useCurrentNamespace creates the bridge and tap devices of c in the namespace of this process.
func useCurrentNamespace(c Config) (netNamespace, error) {
	if !netns.IsUnshared() {
		return nil, errors.New("this process is not in a namespace of netns.StartUnshared: the bridge would be in the machine's network")
	}
	empty, err := IsEmptyNamespace()
	switch {
	case err != nil:
		return nil, err
	case !empty:
		return nil, errors.New("this network namespace has interfaces, and must be empty")
	}
	if err := setLoopbackUp(); err != nil {
		return nil, err
	}
	return currentNamespace{}, createLinks(c)
}

// IsEmptyNamespace reports whether this process is in a namespace of
// netns.StartUnshared without interfaces, as UpInCurrentNamespace needs it.
func IsEmptyNamespace() (bool, error) {
	if !netns.IsUnshared() {
		return false, nil
	}
	all, err := net.Interfaces()
	for _, i := range all { // interfaces that are down do not count: kernels create tunnels in new namespaces
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return false, nil
		}
	}
	return err == nil, err
}

// Do implements netNamespace.
func (currentNamespace) Do(fn func() error) error { return fn() }

// Start implements netNamespace. The process ends with the PID namespace.
func (currentNamespace) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Close implements netNamespace. The kernel removes the namespace when this process ends.
func (currentNamespace) Close() error { return nil }
