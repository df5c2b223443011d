package netns_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/netns/topology"
)

// A bridge creates no GSO packets, but forwards those of hosts on kernel
// cables.
func TestGSOPacketsAreSegmentedBeforeUserCable(t *testing.T) {
	cutHost1 := func(c topology.Cable) bool { return c.A.Node == "host1" }
	f := build(t, star(t, 3, topology.Options{}), netns.Options{UserCable: cutHost1, SegmentGSO: true})
	cuts := func(ns *netns.NS, device string) (cut bool) {
		must.Do(t, ns.Do(func() error {
			l, err := netlink.LinkByName(device)
			cut = err == nil && l.Attrs().GSOMaxSegs == 1
			return err
		}))
		return cut
	}
	for device, want := range map[string]bool{"sw0p0": false, "sw0p1": true, "sw0p2": false} {
		if cuts(f.Core(), device) != want {
			t.Errorf("port %s of the switch: it cuts: %v", device, !want)
		}
	}
	for host, want := range map[string]bool{"host0": false, "host1": true} {
		if cuts(f.Host(host).NS, "rdma0") != want {
			t.Errorf("%s: it cuts: %v", host, !want)
		}
	}
}

func TestUserCablesEndInCore(t *testing.T) {
	cutHost1 := func(c topology.Cable) bool { return c.A.Node == "host1" }
	all := func(topology.Cable) bool { return true }

	f := build(t, star(t, 3, topology.Options{Links: map[string]topology.Link{"host1": {Latency: time.Millisecond}}}), netns.Options{UserCable: cutHost1})
	cables := f.UserCables()
	if len(cables) != 1 || cables[0].Cable.A.String() != "host1/rdma0" || len(f.UserSwitches()) != 0 {
		t.Fatalf("user-space cables %v, switches %v", cables, f.UserSwitches())
	}
	a, b := socket(t, f, "host0", 0, false, testPort), socket(t, f, "host1", 0, false, testPort)
	send(t, a, addrOf(f, "host1", 0, false), "lost")
	if got := pending(t, b, quietFor); got != nil {
		t.Fatalf("an unconnected user-space cable delivered %q", got)
	}
	joinInCore(t, f, "join", cables[0].A, cables[0].B)
	everyPairElse(t, f, false, a, b)
	must.Do(t, f.SetLink("host1", false))
	if carrier(t, f, "host1", "rdma0") {
		t.Error("host1 has a carrier on a cut cable")
	}
	must.Do(t, f.SetLink("host1", true))
	everyPair(t, f, true)
	if err := f.SetRate("host1", 1e9); err == nil || !strings.Contains(err.Error(), "user-space cable") {
		t.Errorf("a rate for a user-space cable: %v", err)
	}

	f = build(t, star(t, 3, topology.Options{Rails: 2}), netns.Options{UserCable: all})
	switches := f.UserSwitches()
	if len(switches) != 2 || len(f.UserCables()) != 0 {
		t.Fatalf("user-space cables %v, switches %v", f.UserCables(), switches)
	}
	for name, ports := range switches {
		var devices []string
		for i, p := range ports {
			if p.Port.Node != name || p.Port.Num != i || p.Far.Node != fmt.Sprint("host", i) {
				t.Errorf("port %d of %s is %+v", i, name, p)
			}
			devices = append(devices, p.Device)
		}
		joinInCore(t, f, "j"+name, devices...)
	}
	everyPair(t, f, false)

	f = build(t, tree(t, 2, 2, 2, topology.Options{}), netns.Options{UserCable: all})
	for i, s := range f.UserCables() {
		joinInCore(t, f, fmt.Sprint("join", i), s.A, s.B)
	}
	everyPair(t, f, true)

	f = build(t, pair(t, topology.Options{}), netns.Options{UserCable: all})
	joinInCore(t, f, "join", f.UserCables()[0].A, f.UserCables()[0].B)
	everyPair(t, f, false)
}

// joinInCore bridges interfaces of the core, as user space would.
func joinInCore(t *testing.T, f *netns.Fabric, bridge string, devices ...string) {
	t.Helper()
	must.Do(t, f.Core().Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = bridge, netns.DefaultMTU
		br := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(br); err != nil {
			return err
		}
		for _, name := range devices {
			dev, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetMaster(dev, br); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(br)
	}))
}
