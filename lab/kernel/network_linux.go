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

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/netns"
)

const tunDevice = "/dev/net/tun"

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

// createLinks creates the bridge, the judge port and the tap devices, in the
// namespace of the calling thread.
func createLinks(c Config) error {
	if err := createBridge(c.MTU); err != nil {
		return fmt.Errorf("interface %s: %w", WireDevice, err)
	}
	if err := createJudgePort(c.MTU); err != nil {
		return fmt.Errorf("interface %s: %w", JudgeDevice, err)
	}
	for id := 1; id <= c.Guests; id++ {
		if err := createTap(wirePort(id), c.MTU, WireDevice); err != nil {
			return fmt.Errorf("interface %s: %w", wirePort(id), err)
		}
		if err := createControlLink(id); err != nil {
			return fmt.Errorf("interface %s: %w", controlPort(id), err)
		}
	}
	return nil
}

// createBridge creates the bridge of the wire, with the lab's addresses.
func createBridge(mtu int) error {
	no := false
	bridge := &netlink.Bridge{LinkAttrs: linkAttrs(WireDevice, mtu), MulticastSnooping: &no}
	// A bridge without a fixed address takes that of a port, which changes when ports
	// move to a switch. Guests would keep the old address.
	mac, err := net.ParseMAC(guest.WireHostMAC)
	if err != nil {
		return err
	}
	bridge.HardwareAddr = mac
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	if err := setIPv6(WireDevice, true); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{guest.WireHost4, guest.WireHost6} {
		if err := addAddr(bridge, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(bridge)
}

// createJudgePort creates a port on which the kernel sends nothing: no ARP, no
// IPv6.
func createJudgePort(mtu int) error {
	pair := &netlink.Veth{LinkAttrs: linkAttrs(judgePort, mtu), PeerName: JudgeDevice}
	if err := netlink.LinkAdd(pair); err != nil {
		return err
	}
	judge, err := netlink.LinkByName(JudgeDevice)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMTU(judge, mtu); err != nil {
		return err
	}
	if err := netlink.LinkSetARPOff(judge); err != nil {
		return err
	}
	if err := setIPv6(JudgeDevice, false); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(judge); err != nil {
		return err
	}
	return addToBridge(pair, WireDevice)
}

// createTap creates a tap device, which QEMU opens by its name.
func createTap(name string, mtu int, bridge string, addrs ...netip.Prefix) error {
	tap := &netlink.Tuntap{
		LinkAttrs: linkAttrs(name, mtu), Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	// Guests are slow: a short queue would drop packets.
	const queue = 10000
	if err := netlink.LinkSetTxQLen(tap, queue); err != nil {
		return err
	}
	if mtu != 0 {
		if err := netlink.LinkSetMTU(tap, mtu); err != nil {
			return err
		}
	}
	if err := setIPv6(name, false); err != nil {
		return err
	}
	for _, a := range addrs {
		if err := addAddr(tap, a); err != nil {
			return err
		}
	}
	if bridge == "" {
		return netlink.LinkSetUp(tap)
	}
	return addToBridge(tap, bridge)
}

// createControlLink creates a control link with a static neighbour entry: the
// kernel would remember a failed ARP request to a guest that was off.
func createControlLink(id int) error {
	if err := createTap(controlPort(id), 0, "", guest.ControlHost(id)); err != nil {
		return err
	}
	l, err := netlink.LinkByName(controlPort(id))
	if err != nil {
		return err
	}
	mac, err := net.ParseMAC(guest.ControlMAC(id))
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: guest.Control(id).Addr().AsSlice(), HardwareAddr: mac,
	})
}

// addToBridge adds an interface without addresses to a bridge.
func addToBridge(l netlink.Link, bridge string) error {
	if err := setIPv6(l.Attrs().Name, false); err != nil {
		return err
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(l, master); err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

func linkAttrs(name string, mtu int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	if mtu != 0 {
		a.MTU = mtu
	}
	return a
}

func addAddr(l netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // needed at once
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("address %v: %w", a, err)
	}
	return nil
}

// setIPv6 enables or disables IPv6 on an interface. Disabling it without IPv6 in
// the kernel is no error.
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

// newNamespace creates the namespace of a lab.
func newNamespace(c Config) (*netns.NS, error) {
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
	// Do runs fn in the namespace. Start starts a process in it, which is killed when this
	// process ends.
	Do(fn func() error) error
	Start(cmd *exec.Cmd) error
	// Close kills the started processes and removes the namespace.
	Close() error
}

// newLabNamespace creates a network namespace with the bridge and tap devices of c.
func newLabNamespace(c Config) (netNamespace, error) { return newNamespace(c) }

// currentNamespace is the network namespace of this process.
type currentNamespace struct{}

// useCurrentNamespace creates the bridge and tap devices of c in the namespace of
// this process.
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
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return nil, fmt.Errorf("interface lo: %w", err)
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
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			return false, nil // kernels create tunnels, which are down
		}
	}
	return err == nil, err
}

// Do implements place.
func (currentNamespace) Do(fn func() error) error { return fn() }

// Start implements netNamespace. The process ends with the PID namespace.
func (currentNamespace) Start(cmd *exec.Cmd) error { return cmd.Start() }

// Close implements place. The kernel removes the namespace when this process ends.
func (currentNamespace) Close() error { return nil }
