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
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
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
	// Temporary names first: the kernel may have given each the name that the other needs.
	for _, l := range []netlink.Link{byMAC[ControlMAC(o.ID)], byMAC[WireMAC(o.ID)]} {
		if err := netlink.LinkSetName(l, fmt.Sprintf("tmp%d", l.Attrs().Index)); err != nil {
			return err
		}
	}
	if err := setUpInterface(byMAC[ControlMAC(o.ID)], "control0", 0, Control(o.ID)); err != nil {
		return err
	}
	return setUpInterface(byMAC[WireMAC(o.ID)], wireDevice, o.MTU, Wire4(o.ID), Wire6(o.ID))
}

// setUpInterface names an interface, sets it up and adds addresses: an IPv4 address, and
// optionally an IPv6 address, without which it disables IPv6. An mtu of 0 keeps the MTU.
func setUpInterface(l netlink.Link, name string, mtu int, addrs ...netip.Prefix) error {
	fail := func(err error) error { return fmt.Errorf("interface %s: %w", name, err) }
	if err := netlink.LinkSetName(l, name); err != nil {
		return fail(err)
	}
	disableIPv6 := "0"
	if len(addrs) < 2 {
		disableIPv6 = "1"
	}
	// The addresses are unique: no duplicate address detection.
	for key, value := range map[string]string{"disable_ipv6": disableIPv6, "accept_dad": "0", "accept_ra": "0"} {
		if err := setSysctl("net/ipv6/conf/"+name+"/"+key, value); err != nil {
			return fail(err)
		}
	}
	if mtu != 0 {
		if err := netlink.LinkSetMTU(l, mtu); err != nil {
			return fail(fmt.Errorf("MTU %d: %w", mtu, err))
		}
	}
	if err := netlink.LinkSetUp(l); err != nil {
		return fail(err)
	}
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.Addr().AsSlice(), Mask: net.CIDRMask(a.Bits(), a.Addr().BitLen())}}
		if err := netlink.AddrAdd(l, addr); err != nil {
			return fail(fmt.Errorf("address %v: %w", a, err))
		}
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
