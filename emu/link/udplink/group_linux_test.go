package udplink

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
)

var multicast = []struct {
	name  string
	v6    bool
	group netip.Addr
}{
	{"ipv4", false, netip.MustParseAddr("239.77.1.2")},
	{"ipv6 link-local", true, netip.MustParseAddr("ff02::77:1")},
	{"ipv6 site-local", true, netip.MustParseAddr("ff15::77:1")},
}

// The links are in other namespaces than the goroutine that joins.
func TestGroupsAcrossNamespaces(t *testing.T) {
	for _, m := range multicast {
		t.Run(m.name, func(t *testing.T) {
			a, b := testutil.HostPair(t, 1500)
			tx := openIn(t, a, Config{Local: a.Addr(m.v6, 4791), PatchIPID: noPatch})
			rx := openIn(t, b, Config{Local: b.Addr(m.v6, 4791)})
			toGroup := netip.AddrPortFrom(m.group, 4791)
			fence := func(d link.Datagram) { d.Dst = local(rx); sendAll(t, tx, d) }
			hello := []link.Datagram{{Dst: toGroup, Payload: pattern(1, 300)}, {Dst: toGroup, HopLimit: 9, TClass: link.ECT0, Payload: pattern(2, 300)}}

			sendAll(t, tx, hello...)
			recvNothing(t, rx, fence) // not joined

			for range 2 {
				must.Do(t, rx.Join(m.group))
			}
			for range 2 { // joined twice, left once: still joined
				sendAll(t, tx, hello...)
				got := recvN(t, rx, 2, 1)
				must.Do(t, samePayloads(got, hello))
				for _, d := range got {
					if d.Dst != toGroup || d.Src != local(tx) {
						t.Errorf("received from %v to %v, want from %v to %v", d.Src, d.Dst, local(tx), toGroup)
					}
				}
				if got[0].HopLimit != tx.Info().HopLimit || got[1].HopLimit != 9 || got[1].TClass != link.ECT0 {
					t.Errorf("hop limits %d and %d, class %#x; want %d, 9, %#x", got[0].HopLimit, got[1].HopLimit, got[1].TClass, tx.Info().HopLimit, link.ECT0)
				}
				must.Do(t, rx.Leave(m.group))
			}
			sendAll(t, tx, hello...)
			recvNothing(t, rx, fence) // left
			if err := rx.Leave(m.group); err == nil {
				t.Error("left a group that was not joined")
			}
		})
	}
}

// The sender gets a copy too if it has joined.
func TestEveryMemberOnHostGetsCopy(t *testing.T) {
	group := netip.MustParseAddr("239.77.1.3")
	var links []*Link
	for i := range byte(3) {
		l := openLink(t, Config{Local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 78, i + 2}), 4791)})
		must.Do(t, l.Join(group))
		links = append(links, l)
	}
	sendAll(t, links[0], link.Datagram{Dst: netip.AddrPortFrom(group, 4791), Payload: pattern(1, 50)})
	for i, l := range links {
		if got := recvN(t, l, 1, 4)[0]; got.Src != local(links[0]) || got.Dst.Addr() != group {
			t.Errorf("member %d: from %v to %v", i, got.Src, got.Dst)
		}
	}
}

func TestWildcardLinkJoins(t *testing.T) {
	a, b := testutil.HostPair(t, 1500)
	group := netip.MustParseAddr("239.77.1.4")
	tx := openIn(t, a, Config{Local: a.Addr(false, 4791)})
	must.Do(t, b.Do(func() error { // the kernel chooses the interface by route
		dev, err := netlink.LinkByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		_, all, _ := net.ParseCIDR("224.0.0.0/4")
		return netlink.RouteAdd(&netlink.Route{LinkIndex: dev.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK})
	}))
	rx := openIn(t, b, Config{Local: netip.MustParseAddrPort("0.0.0.0:4791"), MTU: 1500})
	must.Do(t, rx.Join(group))
	sendAll(t, tx, link.Datagram{Dst: netip.AddrPortFrom(group, 4791), Payload: pattern(1, 50)})
	if got := recvN(t, rx, 1, 4)[0]; got.Dst.Addr() != group {
		t.Errorf("received at %v, want %v", got.Dst, group)
	}
	must.Do(t, rx.Leave(group))
	sendAll(t, tx, link.Datagram{Dst: netip.AddrPortFrom(group, 4791), Payload: pattern(1, 50)})
	recvNothing(t, rx, func(d link.Datagram) { d.Dst = b.Addr(false, 4791); sendAll(t, tx, d) })
}

func TestUnicastDoesNotStarveGroups(t *testing.T) {
	l := loopLink(t)
	group := netip.MustParseAddr("239.77.1.5")
	must.Do(t, l.Join(group))
	sendAll(t, l, link.Datagram{Dst: netip.AddrPortFrom(group, local(l).Port()), Payload: []byte("group")})
	in := make([]link.Datagram, 4)
	for range 10 {
		sendAll(t, l, datagramsTo(l, 4)...)
		n := must.Get(l.Recv(0, in))(t)
		for _, d := range in[:n] {
			if d.Dst.Addr() == group {
				return
			}
		}
	}
	t.Error("ten receives returned unicast datagrams only")
}

func datagramsTo(l *Link, n int) []link.Datagram {
	ds := make([]link.Datagram, n)
	for i := range ds {
		ds[i] = link.Datagram{Dst: local(l), Payload: pattern(i, 32)}
	}
	return ds
}

// The current sleep does not watch the socket of a new group.
func TestJoinWakesWaitReadable(t *testing.T) {
	l := loopLink(t)
	took := waitFor(l, -1)
	awaitSleep(l)
	group := netip.MustParseAddr("239.77.1.6")
	must.Do(t, l.Join(group))
	expectEnd(t, took)
	took = waitFor(l, -1)
	awaitSleep(l)
	sendAll(t, l, link.Datagram{Dst: netip.AddrPortFrom(group, local(l).Port()), Payload: []byte("group")})
	expectEnd(t, took)
	recvN(t, l, 1, 1)
}

func TestJoinRejectsOtherAddresses(t *testing.T) {
	l := loopLink(t)
	for _, addr := range []string{"127.0.0.9", "ff02::1", "::"} {
		if err := l.Join(netip.MustParseAddr(addr)); err == nil {
			t.Errorf("joined %s", addr)
		}
	}
	if n := len(*l.sleep.watched.Load()); n != 2 {
		t.Errorf("%d descriptors watched, want 2", n)
	}
}

func TestLinkLocalAddressNeedsNoZone(t *testing.T) {
	a, b := testutil.HostPair(t, 1500)
	ll := map[*testutil.Host]netip.AddrPort{a: netip.MustParseAddrPort("[fe80::a]:4791"), b: netip.MustParseAddrPort("[fe80::b]:4791")}
	var links []*Link
	for _, h := range []*testutil.Host{a, b} {
		must.Do(t, h.AddAddr(netip.PrefixFrom(ll[h].Addr(), 64)))
		links = append(links, openIn(t, h, Config{Local: ll[h]}))
	}
	for range 3 { // in both directions
		sendAll(t, links[0], link.Datagram{Dst: local(links[1]), Payload: pattern(1, 64)})
		if got := recvN(t, links[1], 1, 1)[0]; got.Src != local(links[0]) || got.Dst != local(links[1]) {
			t.Errorf("received from %v to %v", got.Src, got.Dst)
		}
		links[0], links[1] = links[1], links[0]
	}
	if mtu := links[0].MTU(); mtu != 1500 {
		t.Errorf("MTU %d, want 1500", mtu)
	}
}

func TestBroadcastAcrossNamespaces(t *testing.T) {
	a, b := testutil.HostPair(t, 1500)
	tx := openIn(t, a, Config{Local: a.Addr(false, 4791), PatchIPID: noPatch, Broadcast: true})
	rx := openIn(t, b, Config{Local: b.Addr(false, 4791), Broadcast: true})
	broadcast := netip.AddrPortFrom(limitedBroadcast, 4791)
	fence := func(d link.Datagram) { d.Dst = local(rx); sendAll(t, tx, d) }
	hello := []link.Datagram{{Dst: broadcast, Payload: pattern(1, 300)}, {Dst: broadcast, Payload: pattern(2, 300)}}

	sendAll(t, tx, hello...)
	recvNothing(t, rx, fence) // not joined

	must.Do(t, rx.Join(limitedBroadcast))
	sendAll(t, tx, hello...)
	got := recvN(t, rx, 2, 1)
	must.Do(t, samePayloads(got, hello))
	if got[0].Dst != broadcast || got[0].Src != local(tx) {
		t.Errorf("received from %v to %v", got[0].Src, got[0].Dst)
	}
	must.Do(t, rx.Leave(limitedBroadcast))
	sendAll(t, tx, hello...)
	recvNothing(t, rx, fence)
}

// Without Config.Broadcast broadcasts are neither sent nor received.
func TestBroadcastNeedsOption(t *testing.T) {
	a, _ := testutil.HostPair(t, 1500)
	l := openIn(t, a, Config{Local: a.Addr(false, 4791)})
	if err := l.Join(limitedBroadcast); err == nil || !strings.Contains(err.Error(), "Broadcast") {
		t.Errorf("joined: %v", err)
	}
	sendAll(t, l, link.Datagram{Dst: netip.AddrPortFrom(limitedBroadcast, 4791), Payload: pattern(1, 10)})
	if s := l.Stats(); s.LostDenied != 1 {
		t.Errorf("%+v", s)
	}
}
