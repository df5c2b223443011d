package guest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// wireDevice is the interface of the RDMA devices.
const wireDevice = "eth0"

// waitTimeout bounds waits for the kernel.
const waitTimeout = 30 * time.Second

// waitFor polls done until it returns true. After waitTimeout it returns an error with the text
// problem.
func waitFor(problem string, done func() bool) error {
	for end := time.Now().Add(waitTimeout); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New(problem)
		}
	}
	return nil
}

// configureNetwork sets the loopback interface up, and names and configures the interfaces of the
// wire and the control link, which it finds by their Ethernet addresses.
func configureNetwork(o Options) error {
	if err := SetLoopbackUp(); err != nil {
		return err
	}
	byMAC := map[string]netlink.Link{}
	if err := waitFor("the network interfaces of the wire and the control link did not appear", func() bool {
		all, err := netlink.LinkList()
		if err != nil {
			return false
		}
		for _, l := range all {
			byMAC[l.Attrs().HardwareAddr.String()] = l
		}
		return byMAC[WireMAC(o.ID)] != nil && byMAC[ControlMAC(o.ID)] != nil
	}); err != nil {
		return err
	}
	wire, control := byMAC[WireMAC(o.ID)], byMAC[ControlMAC(o.ID)]
	return InOrder(
		// The kernel may have given each interface the name that the other needs.
		func() error { return netlink.LinkSetName(control, "temporary0") },
		func() error { return netlink.LinkSetName(wire, "temporary1") },
		func() error { return setUpInterface(control, "control0", 0, Control(o.ID)) },
		func() error { return setUpInterface(wire, wireDevice, o.MTU, Wire4(o.ID), Wire6(o.ID)) })
}

// InOrder calls the steps in order, up to the first error, which it returns.
func InOrder(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// SetLoopbackUp sets the loopback interface up.
func SetLoopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// NetlinkAddr returns the address and network of an interface for netlink.
func NetlinkAddr(a netip.Prefix) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
}

// setUpInterface names an interface, sets it up and adds addresses: an IPv4 address, and
// optionally an IPv6 address, without which it disables IPv6. An mtu of 0 keeps the MTU.
func setUpInterface(l netlink.Link, name string, mtu int, addrs ...netip.Prefix) error {
	disableIPv6 := "0"
	if len(addrs) < 2 {
		disableIPv6 = "1"
	}
	sysctls := "net/ipv6/conf/" + name + "/"
	steps := []func() error{
		func() error { return netlink.LinkSetName(l, name) },
		func() error { return setSysctl(sysctls+"disable_ipv6", disableIPv6) },
		func() error { return setSysctl(sysctls+"accept_dad", "0") }, // the addresses are unique
		func() error { return setSysctl(sysctls+"accept_ra", "0") },
	}
	if mtu != 0 {
		steps = append(steps, func() error { return netlink.LinkSetMTU(l, mtu) })
	}
	steps = append(steps, func() error { return netlink.LinkSetUp(l) })
	for _, a := range addrs {
		steps = append(steps, func() error { return netlink.AddrAdd(l, NetlinkAddr(a)) })
	}
	if err := InOrder(steps...); err != nil {
		return fmt.Errorf("interface %s, MTU %d, addresses %v: %w", name, mtu, addrs, err)
	}
	return nil
}

// setDevices removes all RDMA devices, creates others on the wire, and waits until they are active.
// run runs a program. DevicesFile exists only while the devices are complete.
func setDevices(all []Device, run func(args ...string) error) error {
	if err := os.RemoveAll(DevicesFile); err != nil {
		return err
	}
	old, err := os.ReadDir("/sys/class/infiniband")
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	for _, d := range old {
		if err := netlink.RdmaLinkDel(d.Name()); err != nil {
			return fmt.Errorf("remove device %s: %w", d.Name(), err)
		}
	}
	for _, d := range all {
		if err := loadModule(d, run); err != nil {
			return err
		}
		if err := netlink.RdmaLinkAdd(d.Name(), d.Kind(), wireDevice); err != nil {
			return fmt.Errorf("create device %s on %s: %w", d.Name(), wireDevice, err)
		}
		state := "/sys/class/infiniband/" + d.Name() + "/ports/1/state"
		if err := waitFor(fmt.Sprintf("device %s does not become active", d.Name()), func() bool {
			text, err := os.ReadFile(state)
			return err == nil && strings.Contains(string(text), "ACTIVE")
		}); err != nil {
			return err
		}
	}
	return os.WriteFile(DevicesFile, []byte(formatDevices(all)+"\n"), 0o644)
}

// loadModule loads the kernel module of a device. The variants of siw, siw and siw-crc, exclude
// each other: it unloads a loaded one first. run runs a program.
func loadModule(d Device, run func(args ...string) error) error {
	if d.Kind() != string(SIW) {
		return run("/bin/modprobe", "rdma_rxe")
	}
	if err := unix.DeleteModule("siw", 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unload siw: %w", err)
	}
	f, err := os.Open("/lib/siw/" + string(d) + ".ko")
	if err != nil {
		return fmt.Errorf("the guest was booted without siw: boot it with that device: %w", err)
	}
	defer f.Close()
	if err := run("/bin/modprobe", "-a", "iw_cm", "libcrc32c", "crc32c_generic"); err != nil { // finit_module does not load dependencies of siw
		return err
	}
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return fmt.Errorf("load %s: %w", d, err)
	}
	return nil
}
