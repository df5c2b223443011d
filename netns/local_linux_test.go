package netns_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// Every host of a new fabric has a local route to each of its addresses.
// Without it the kernel drops received packets.
func TestBuildWaitsForLocalRoutes(t *testing.T) {
	f := build(t, star(t, 8, topology.Options{Rails: 2}), netns.Options{})
	for _, h := range f.Topology().Hosts {
		must.Do(t, f.Host(h.Name).NS.Do(func() error {
			for _, n := range h.NICs {
				for _, a := range n.Addrs {
					routes, err := netlink.RouteGet(a.Addr().AsSlice())
					if err != nil || routes[0].Type != unix.RTN_LOCAL {
						t.Errorf("%s, %v: %v, %v", h.Name, a, routes, err)
					}
				}
			}
			return nil
		}))
	}
}

func TestWaitLocalRouteWaitsForAddress(t *testing.T) {
	f := build(t, star(t, 2, topology.Options{}), netns.Options{})
	for _, text := range []string{"fd99::1/64", "198.51.100.7/24"} {
		added := make(chan error, 1)
		must.Do(t, f.Host("host0").NS.Do(func() error {
			l, err := netlink.LinkByName(f.Topology().Hosts[0].NICs[0].Name)
			if err != nil {
				return err
			}
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			go func() {
				ip, err := netlink.ParseAddr(text)
				added <- errors.Join(err, h.AddrAdd(l, ip))
			}()
			own, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer own.Close()
			return errors.Join(netns.WaitLocalRoute(own, netip.MustParsePrefix(text).Addr()), <-added)
		}))
	}
}
