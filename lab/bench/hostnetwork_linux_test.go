package bench

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/agent"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

// inNamespace returns a host whose device is on one end of a veth pair.
func inNamespace(t *testing.T) (*LocalHost, *testutil.Host) {
	t.Helper()
	ns, _ := testutil.HostPair(t, 1500)
	var h *LocalHost
	must.Do(t, ns.Do(func() (err error) {
		h, err = NewLocalHost(listedDevices{[]string{"rxe0"}}, LocalHostOptions{Root: makeFiles(t, sysfsFiles)})
		return err
	}))
	t.Cleanup(h.Close)
	return h, ns
}

func identity(t *testing.T, h *LocalHost) agent.DeviceIdentity {
	t.Helper()
	id := must.Get(h.Identity())(t)
	return id.Devices[0]
}

func TestSetAddress(t *testing.T) {
	h, ns := inNamespace(t)
	if d := identity(t, h); d.MTU != 1500 || len(d.MAC) != 17 || !slices.Contains(d.Addrs, netip.PrefixFrom(ns.V4, 24)) {
		t.Errorf("%+v", d)
	}
	for _, a := range []string{"10.9.9.1/24", "fd99::1/64"} {
		addr := netip.MustParsePrefix(a)
		for _, present := range []bool{true, true, false, false} { // setting it twice is no error
			if err := h.SetAddress("rxe0", addr, present); err != nil {
				t.Errorf("%v %v: %v", addr, present, err)
			}
			if has := slices.Contains(identity(t, h).Addrs, addr); has != present {
				t.Errorf("%v %v: %v", addr, present, identity(t, h).Addrs)
			}
			// An added address is usable at once.
			err := ns.Do(func() error {
				c, err := net.ListenPacket("udp", netip.AddrPortFrom(addr.Addr(), 0).String())
				if err == nil {
					c.Close()
				}
				return err
			})
			if (err == nil) != present {
				t.Errorf("%v %v: %v", addr, present, err)
			}
		}
	}
}

func TestSetLinkRestoresAddressesAndRoutes(t *testing.T) {
	h, ns := inNamespace(t)
	routes := make([]netlink.Route, 2)
	for i, dst := range []string{"fd55::", "fd56::"} {
		routes[i] = netlink.Route{Dst: &net.IPNet{IP: net.ParseIP(dst), Mask: net.CIDRMask(64, 128)}, Scope: unix.RT_SCOPE_LINK}
	}
	err := ns.Do(func() error {
		l, err := netlink.LinkByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		for i := range routes {
			routes[i].LinkIndex = l.Attrs().Index
			if err := netlink.RouteAdd(&routes[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := netip.PrefixFrom(ns.V6, 64)
	routed := func() (n int) {
		err := ns.Do(func() error {
			for _, r := range routes {
				all, err := netlink.RouteListFiltered(unix.AF_INET6, &netlink.Route{Dst: r.Dst}, netlink.RT_FILTER_DST)
				if err != nil {
					return err
				}
				n += len(all)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for range 2 {
		for _, up := range []bool{false, false, true, true} {
			must.Do(t, h.SetLink("rxe0", up))
			wantRoutes := 0
			if up {
				wantRoutes = len(routes)
			}
			if has := slices.Contains(identity(t, h).Addrs, want); has != up || routed() != wantRoutes {
				t.Errorf("up %v: addresses %v, %d routes, want %d", up, identity(t, h).Addrs, routed(), wantRoutes)
			}
		}
	}
	if _, err := h.link("siw0"); err == nil {
		t.Error("no error for a device without an interface")
	}
}

func TestAvailableMemory(t *testing.T) {
	if n, err := AvailableMemory(); err != nil || n < 1<<20 || n > 1<<50 {
		t.Errorf("%d bytes are available, %v", n, err)
	}
}
