package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/agent"
)

// patience is how long the kernel may take to do what it was told.
const patience = 30 * time.Second

// network is the kernel's.
type network struct {
	kernel *netlink.Handle

	mu sync.Mutex
	// lost is what interfaces lost when they were taken down, by name.
	lost map[string]belongings
}

// belongings are what the kernel takes from an interface that is down: addresses of
// IPv6, and routes.
type belongings struct {
	addrs  []netlink.Addr
	routes []netlink.Route
}

func (n *network) open() (err error) {
	n.lost = make(map[string]belongings)
	n.kernel, err = netlink.NewHandle(unix.NETLINK_ROUTE)
	return err
}

func (n *network) close() { n.kernel.Close() }

// link is the interface of a device.
func (h *Host) link(device string) (netlink.Link, error) {
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

// refused says what it means that the kernel said no.
func refused(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: the agent needs CAP_NET_ADMIN (%w)", what, agent.ErrCannot, err)
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EPROTONOSUPPORT):
		return fmt.Errorf("%s: %w: %w", what, agent.ErrCannot, err)
	default:
		return fmt.Errorf("%s: %w", what, err)
	}
}

// SetLink implements agent.Host: it sets the interface up or down. What the kernel takes
// from an interface that is down, it gets back.
func (h *Host) SetLink(device string, up bool) error {
	l, err := h.link(device)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name := l.Attrs().Name
	isUp := l.Attrs().Flags&net.FlagUp != 0
	switch {
	case isUp == up:
		return nil
	case !up:
		has, err := h.belongings(l)
		if err != nil {
			return err
		}
		if err := refused("take "+name+" down", h.kernel.LinkSetDown(l)); err != nil {
			return err
		}
		h.lost[name] = has
		return nil
	}
	if err := refused("bring "+name+" up", h.kernel.LinkSetUp(l)); err != nil {
		return err
	}
	return h.giveBack(l)
}

// belongings are what the interface would lose.
func (n *network) belongings(l netlink.Link) (b belongings, err error) {
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

// giveBack restores what the interface lost, when it carries packets again.
func (n *network) giveBack(l netlink.Link) error {
	name := l.Attrs().Name
	b := n.lost[name]
	delete(n.lost, name)
	if err := n.awaitUp(name); err != nil {
		return err
	}
	for _, a := range b.addrs {
		if a.Scope == int(netlink.SCOPE_LINK) {
			continue // the kernel makes its own
		}
		addr := netlink.Addr{IPNet: a.IPNet, Flags: unix.IFA_F_NODAD, Scope: a.Scope}
		if err := refused(fmt.Sprintf("give %s back to %s", a.IPNet, name), n.kernel.AddrReplace(l, &addr)); err != nil {
			return err
		}
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			if err := n.awaitLocal(ip); err != nil {
				return err
			}
		}
	}
	for _, r := range b.routes {
		if err := refused(fmt.Sprintf("give the route %v back to %s", r, name), n.kernel.RouteReplace(&r)); err != nil {
			return err
		}
	}
	return nil
}

// SetAddress implements agent.Host.
func (h *Host) SetAddress(device string, addr netip.Prefix, present bool) error {
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
		return refused("remove the "+what, err)
	}
	if ip.Is6() {
		a.Flags = unix.IFA_F_NODAD // whether others have it takes a second to find out
	}
	if err := refused("set the "+what, h.kernel.AddrReplace(l, a)); err != nil {
		return err
	}
	if l.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	return h.awaitLocal(ip)
}

// Restart implements agent.Host: it removes a software device and makes it again. What
// hardware has of its own to be restarted is not for us to know.
func (h *Host) Restart(device string) error {
	kind, ok := map[string]string{driverRXE: linkRXE, driverSIW: linkSIW}[h.driver(device)]
	if !ok {
		return fmt.Errorf("restart %s: %w: it is none of the kernel's software devices", device, agent.ErrCannot)
	}
	dev, err := h.netDevice(device)
	if err != nil {
		return err
	}
	if err := refused("remove "+device, netlink.RdmaLinkDel(device)); err != nil {
		return err
	}
	if err := refused(fmt.Sprintf("make %s of type %s on %s", device, kind, dev), netlink.RdmaLinkAdd(device, kind, dev)); err != nil {
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

// describe adds what the kernel knows of the interface.
func (n *network) describe(d *agent.DeviceIdentity) {
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
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			bits, _ := a.Mask.Size()
			d.Addrs = append(d.Addrs, netip.PrefixFrom(ip.Unmap(), bits))
		}
	}
}

// awaitUp returns when an interface carries packets, or will never say.
func (n *network) awaitUp(name string) error {
	return await(name+" to carry packets", func() (bool, error) {
		l, err := n.kernel.LinkByName(name)
		if err != nil {
			return false, err
		}
		state := l.Attrs().OperState
		return state == netlink.OperUp || state == netlink.OperUnknown, nil
	})
}

// awaitLocal returns when the kernel takes packets to an address for its own: for IPv6
// that is a moment after it was set.
func (n *network) awaitLocal(ip netip.Addr) error {
	return await(fmt.Sprintf("%v to lead to this host", ip), func() (bool, error) {
		routes, err := n.kernel.RouteGet(ip.AsSlice())
		return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
	})
}

// await looks until something is so.
func await(what string, is func() (bool, error)) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		ok, err := is()
		switch {
		case ok || err != nil:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("waited %v for %s", patience, what)
		}
	}
}

// kernelRelease is what uname says.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}
