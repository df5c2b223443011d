package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/lab/kernel/image"
	"github.com/fabrictest/fabrictest/netns"
)

const tunDevice = "/dev/net/tun"

// checkTun says why there can be no cables to guests.
func checkTun() error {
	f, err := os.OpenFile(tunDevice, os.O_RDWR, 0)
	if err == nil {
		return f.Close()
	}
	e := &image.MissingError{What: []string{tunDevice}, For: "cables to guests (" + err.Error() + ")"}
	switch {
	case errors.Is(err, unix.ENOENT):
		e.Cure = "modprobe tun (as root); in a container, start it with --device " + tunDevice
	case errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		e.Cure = "modprobe tun (as root), on a kernel that has it"
	default:
		e.Cure = "chmod 666 " + tunDevice + " (as root), or run as root"
	}
	return e
}

// lay makes the wire and the control links, in the namespace that the calling thread
// is in.
func lay(c Config) error {
	if err := layWire(c.MTU); err != nil {
		return fmt.Errorf("interface %s: %w", WireDevice, err)
	}
	if err := layJudge(c.MTU); err != nil {
		return fmt.Errorf("interface %s: %w", JudgeDevice, err)
	}
	for id := 1; id <= c.Guests; id++ {
		if err := layTap(wirePort(id), c.MTU, WireDevice); err != nil {
			return fmt.Errorf("interface %s: %w", wirePort(id), err)
		}
		if err := layControl(id); err != nil {
			return fmt.Errorf("interface %s: %w", controlPort(id), err)
		}
	}
	return nil
}

func layWire(mtu int) error {
	no := false
	bridge := &netlink.Bridge{LinkAttrs: attributes(WireDevice, mtu), MulticastSnooping: &no}
	// Without one of its own it would have that of a port, and another when that port goes
	// to the switch: guests know it by the former.
	mac, err := net.ParseMAC(guest.WireHostMAC)
	if err != nil {
		return err
	}
	bridge.HardwareAddr = mac
	if err := netlink.LinkAdd(bridge); err != nil {
		return err
	}
	if err := ipv6(WireDevice, true); err != nil {
		return err
	}
	for _, a := range []netip.Prefix{guest.WireHost4, guest.WireHost6} {
		if err := address(bridge, a); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(bridge)
}

// layJudge makes a port at which the kernel says nothing: no ARP, no IPv6.
func layJudge(mtu int) error {
	pair := &netlink.Veth{LinkAttrs: attributes(judgePort, mtu), PeerName: JudgeDevice}
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
	if err := ipv6(JudgeDevice, false); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(judge); err != nil {
		return err
	}
	return plug(pair, WireDevice)
}

// layTap makes a cable to a guest. QEMU finds it by its name, and a guest that is
// started again finds it as it was.
func layTap(name string, mtu int, bridge string, addrs ...netip.Prefix) error {
	tap := &netlink.Tuntap{
		LinkAttrs: attributes(name, mtu), Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR,
	}
	if err := netlink.LinkAdd(tap); err != nil {
		return err
	}
	// A guest is slow: a queue that is too short would lose what it is sent.
	const queue = 10000
	if err := netlink.LinkSetTxQLen(tap, queue); err != nil {
		return err
	}
	if mtu != 0 {
		if err := netlink.LinkSetMTU(tap, mtu); err != nil {
			return err
		}
	}
	if err := ipv6(name, false); err != nil {
		return err
	}
	for _, a := range addrs {
		if err := address(tap, a); err != nil {
			return err
		}
	}
	if bridge == "" {
		return netlink.LinkSetUp(tap)
	}
	return plug(tap, bridge)
}

// layControl makes a control link. The guest at its other end is known, and need not
// be asked for: while it was off nobody answered, and the kernel would remember that
// for a while when it is on again.
func layControl(id int) error {
	if err := layTap(controlPort(id), 0, "", guest.ControlHost(id)); err != nil {
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

// plug joins an interface to the bridge, without an address of its own.
func plug(l netlink.Link, bridge string) error {
	if err := ipv6(l.Attrs().Name, false); err != nil {
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

func attributes(name string, mtu int) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	if mtu != 0 {
		a.MTU = mtu
	}
	return a
}

func address(l netlink.Link, a netip.Prefix) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
	if a.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // nobody else has it, and it is needed at once
	}
	if err := netlink.AddrAdd(l, addr); err != nil {
		return fmt.Errorf("address %v: %w", a, err)
	}
	return nil
}

// ipv6 switches IPv6 on or off at an interface. Where the machine has none at all it
// is off anyway.
func ipv6(device string, on bool) error {
	value := "1"
	if on {
		value = "0"
	}
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/disable_ipv6", []byte(value), 0)
	if err != nil && on {
		return fmt.Errorf("this kernel has no IPv6, or does not let it be switched on: %w", err)
	}
	return nil
}

// newNamespace makes the lab's.
func newNamespace(c Config) (*netns.NS, error) {
	ns, err := netns.New()
	if err != nil {
		return nil, err
	}
	if err := ns.Do(func() error { return lay(c) }); err != nil {
		ns.Close()
		return nil, err
	}
	return ns, nil
}
