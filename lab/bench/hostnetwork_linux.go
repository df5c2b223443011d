package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/netns"
)

// kernelTimeout limits the time that the kernel takes for a change.
const kernelTimeout = 30 * time.Second

// hostNetwork is the netlink state of a host.
type hostNetwork struct {
	kernel *netlink.Handle

	mu sync.Mutex
	// lost are the addresses and routes that interfaces lost when set down, by name.
	lost map[string]addressesAndRoutes
}

// addressesAndRoutes are the IPv6 addresses and routes that the kernel removes at link down.
type addressesAndRoutes struct {
	addrs  []netlink.Addr
	routes []netlink.Route
}

// open opens the netlink socket.
func (n *hostNetwork) open() (err error) {
	n.lost = make(map[string]addressesAndRoutes) // of interfaces that SetLink has set down
	n.kernel, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	return err
}

func (n *hostNetwork) close() { n.kernel.Close() }

// link returns the interface of a device.
func (h *LocalHost) link(device string) (netlink.Link, error) {
	name, err := h.netDevice(device)
	if err != nil {
		return nil, err
	}
	l, err := h.kernel.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s of %s: %w", name, device, err)
	}
	return l, nil
}

// wrapKernelError adds the action that failed to an error of the kernel, and agent.ErrHostCannot if
// this process may not do it or the kernel does not support it.
func wrapKernelError(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: the agent needs CAP_NET_ADMIN (%w)", action, agent.ErrHostCannot, err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%s: %w: %w", action, agent.ErrHostCannot, err)
	default:
		return fmt.Errorf("%s: %w", action, err)
	}
}

// SetLink implements agent.Host. Before it sets the interface down, it saves the addresses and
// routes that the kernel then removes; it restores them when it sets the interface up.
func (h *LocalHost) SetLink(device string, up bool) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := l.Attrs().Name
	isUp := l.Attrs().Flags&net.FlagUp != 0
	if isUp == up {
		return nil
	}
	if !up {
		saved, err := h.addressesAndRoutes(l)
		if err == nil {
			err = wrapKernelError("take "+name+" down", h.kernel.LinkSetDown(l))
		}
		if err == nil {
			h.lost[name] = saved
		}
		return err
	}
	if err := wrapKernelError("bring "+name+" up", h.kernel.LinkSetUp(l)); err != nil {
		return err
	}
	return h.restore(l)
}

// addressesAndRoutes returns what an interface loses when it is set down: its IPv6 addresses (IPv4
// ones stay), and its routes other than those of the kernel itself and of router advertisements.
func (n *hostNetwork) addressesAndRoutes(l netlink.Link) (b addressesAndRoutes, err error) {
	if b.addrs, err = n.kernel.AddrList(l, unix.AF_INET6); err != nil {
		return b, fmt.Errorf("addresses of %s: %w", l.Attrs().Name, err)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := n.kernel.RouteList(l, family)
		if err != nil {
			return b, fmt.Errorf("routes of %s: %w", l.Attrs().Name, err)
		}
		for _, r := range routes {
			if r.Protocol != unix.RTPROT_KERNEL && r.Protocol != unix.RTPROT_RA {
				b.routes = append(b.routes, r)
			}
		}
	}
	return b, nil
}

// restore waits until the interface is running, and adds the addresses and routes again that it
// lost when it was set down.
func (n *hostNetwork) restore(l netlink.Link) error {
	name := l.Attrs().Name
	b := n.lost[name]
	delete(n.lost, name)
	if err := n.awaitUp(name); err != nil {
		return err
	}
	for _, a := range b.addrs {
		if a.Scope == int(netlink.SCOPE_LINK) {
			continue // the kernel creates link-local addresses itself
		}
		addr := netlink.Addr{IPNet: a.IPNet, Flags: unix.IFA_F_NODAD, Scope: a.Scope}
		if err := wrapKernelError(fmt.Sprintf("give %s back to %s", a.IPNet, name), n.kernel.AddrReplace(l, &addr)); err != nil {
			return err
		}
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			if err := netns.WaitLocalRoute(n.kernel, ip); err != nil {
				return err
			}
		}
	}
	for _, r := range b.routes {
		if err := wrapKernelError(fmt.Sprintf("give the route %v back to %s", r, name), n.kernel.RouteReplace(&r)); err != nil {
			return err
		}
	}
	return nil
}

// SetAddress implements agent.Host. It waits until the kernel receives packets to a new address.
func (h *LocalHost) SetAddress(device string, addr netip.Prefix, present bool) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	ip := addr.Addr().Unmap()
	a := &netlink.Addr{IPNet: &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(addr.Bits(), ip.BitLen())}}
	what := fmt.Sprintf("address %v of %s", addr, l.Attrs().Name)
	if !present {
		err := h.kernel.AddrDel(l, a)
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			return nil
		}
		return wrapKernelError("remove the "+what, err)
	}
	if ip.Is6() {
		a.Flags = unix.IFA_F_NODAD // duplicate address detection takes a second
	}
	if err := wrapKernelError("set the "+what, h.kernel.AddrReplace(l, a)); err != nil {
		return err
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	return netns.WaitLocalRoute(h.kernel, ip)
}

// Restart implements agent.Host. It recreates a software device, but cannot restart hardware.
func (h *LocalHost) Restart(device string) error {
	kind, ok := map[string]string{driverRXE: linkRXE, driverSIW: linkSIW}[h.driver(device)]
	if !ok {
		return fmt.Errorf("restart %s: %w: it is not a software device of the kernel", device, agent.ErrHostCannot)
	}
	dev, err := h.netDevice(device)
	if err != nil {
		return err
	}
	if err := wrapKernelError("remove "+device, netlink.RdmaLinkDel(device)); err != nil {
		return err
	}
	if err := wrapKernelError(fmt.Sprintf("make %s of type %s on %s", device, kind, dev), netlink.RdmaLinkAdd(device, kind, dev)); err != nil {
		return err
	}
	return await(fmt.Sprintf("the new %s to be listed", device), func() (bool, error) {
		all, err := h.provider.Devices()
		for _, d := range all {
			if d.Name == device {
				return true, err
			}
		}
		return false, err
	})
}

// describe sets the MAC, MTU and addresses in d to those of its interface, if the kernel has them.
func (n *hostNetwork) describe(d *agent.DeviceIdentity) {
	l, err := n.kernel.LinkByName(d.NetDevice)
	if err != nil {
		return
	}
	d.MAC, d.MTU = l.Attrs().HardwareAddr.String(), l.Attrs().MTU
	addrs, err := n.kernel.AddrList(l, unix.AF_UNSPEC)
	if err != nil {
		return
	}
	for _, a := range addrs {
		d.Addrs = append(d.Addrs, prefixOf(a.IPNet))
	}
}

// awaitUp waits until an interface is running, or reports no state.
func (n *hostNetwork) awaitUp(name string) error {
	return await(name+" to carry packets", func() (bool, error) {
		l, err := n.kernel.LinkByName(name)
		if err != nil {
			return false, err
		}
		state := l.Attrs().OperState
		return state == netlink.OperUp || state == netlink.OperUnknown, nil
	})
}

// await polls until done returns true or an error, for up to kernelTimeout. change describes the
// expected change in the error of a timeout.
func await(change string, done func() (bool, error)) error {
	for deadline := time.Now().Add(kernelTimeout); ; time.Sleep(time.Millisecond) {
		ok, err := done()
		switch {
		case ok || err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("waited %v for %s", kernelTimeout, change)
		}
	}
}

// AvailableMemory returns MemAvailable of /proc/meminfo in bytes.
func AvailableMemory() (uint64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, line, _ := strings.Cut(string(text), "\nMemAvailable:")
	var kib uint64
	if _, err := fmt.Sscanf(line, "%d kB", &kib); err != nil {
		return 0, fmt.Errorf("/proc/meminfo: MemAvailable: %w", err)
	}
	return kib << 10, nil
}
