package sim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

// reached sends one broadcast and returns the numbers of the hosts that received it.
func reached(t *testing.T, w *World, hosts []*host, from int) (all []int) {
	t.Helper()
	for _, h := range hosts {
		h.got = nil
	}
	hosts[from].must(t, link.Datagram{Src: hosts[from].addr, Dst: netip.AddrPortFrom(limitedBroadcast, 4791), Payload: []byte("all")})
	mustRun(t, w)
	for i, h := range hosts {
		for range h.got {
			all = append(all, i)
		}
	}
	return all
}

// A switch floods a broadcast to every other port, joined or not; the sender
// receives it only if it has joined.
func TestBroadcastReachesEveryOtherPort(t *testing.T) {
	for _, cable := range []bool{false, true} {
		w := New(Config{})
		n := newNet(t, w, NetConfig{Cable: cable})
		count := 4
		if cable {
			count = 2
		}
		var hosts []*host
		for range count {
			hosts = append(hosts, attach(t, n, PortConfig{}))
		}
		everyone := []int{0, 1, 2, 3}[:count]
		if got, want := reached(t, w, hosts, 0), everyone[1:]; !slices.Equal(got, want) {
			t.Errorf("cable %v: reached %v, want %v", cable, got, want)
		}
		for _, h := range hosts[:2] {
			must.Do(t, h.Join(limitedBroadcast))
		}
		if got := reached(t, w, hosts, 0); !slices.Equal(got, everyone) {
			t.Errorf("cable %v: reached %v, want %v: the sender has joined", cable, got, everyone)
		}
		must.Do(t, hosts[0].Leave(limitedBroadcast))
		if got, want := reached(t, w, hosts, 0), everyone[1:]; !slices.Equal(got, want) {
			t.Errorf("cable %v: reached %v, want %v: the sender has left", cable, got, want)
		}
		last := hosts[count-1]
		must.Do(t, last.Close())
		if got, want := reached(t, w, hosts, 0), everyone[1:count-1]; !slices.Equal(got, want) {
			t.Errorf("cable %v: reached %v, want %v: one is closed", cable, got, want)
		}
		if inUse := n.packets.made - len(n.packets.free); inUse != 0 {
			t.Errorf("cable %v: %d packets leaked", cable, inUse)
		}
	}
}

// A broadcast without receivers is dropped and counted.
func TestBroadcastWithoutReceiversIsDropped(t *testing.T) {
	w := New(Config{})
	hosts := star(t, w, 1, LinkConfig{})
	if got := reached(t, w, hosts, 0); got != nil || hosts[0].Stats().Drops.NoRoute != 1 {
		t.Errorf("reached %v, %+v", got, hosts[0].Stats())
	}
}

// Partitions apply to broadcasts too.
func TestBroadcastStaysInPartition(t *testing.T) {
	w := New(Config{})
	hosts := star(t, w, 4, LinkConfig{})
	hosts[0].Net().Partition([]*Port{hosts[0].Port, hosts[1].Port}, []*Port{hosts[2].Port, hosts[3].Port})
	if got := reached(t, w, hosts, 2); !slices.Equal(got, []int{3}) {
		t.Errorf("reached %v, want 3 alone", got)
	}
}

// Switches forward broadcasts over trunks, in a loop of trunks only once; a
// router does not.
func TestRouterSeparatesBroadcastDomains(t *testing.T) {
	w := New(Config{})
	n := newNet(t, w, NetConfig{})
	var switches []*Switch
	var hosts []*host
	for i, routed := range []bool{false, false, false, true, false} {
		s := must.Get(n.AddSwitch(SwitchConfig{Name: fmt.Sprint("s", i), Routed: routed}))(t)
		switches = append(switches, s)
	}
	for _, s := range switches {
		for range 2 {
			hosts = append(hosts, attach(t, n, PortConfig{Switch: s}))
		}
	}
	trunk := func(a, b int) {
		must.Get(n.AddTrunk(TrunkConfig{A: switches[a], B: switches[b]}))(t)
	}
	trunk(0, 1)
	trunk(1, 2)
	trunk(2, 0)
	trunk(2, 3)
	trunk(3, 4)
	for from, want := range map[int][]int{
		0: {1, 2, 3, 4, 5}, // through two switches, not through the router
		6: {7},             // of the router's own ports
		8: {9},             // behind the router
	} {
		if got := reached(t, w, hosts, from); !slices.Equal(got, want) {
			t.Errorf("from host %d: reached %v, want %v", from, got, want)
		}
	}
	trunk(2, 4) // the computed domains change
	if got, want := reached(t, w, hosts, 8), []int{0, 1, 2, 3, 4, 5, 9}; !slices.Equal(got, want) {
		t.Errorf("with another trunk: reached %v, want %v", got, want)
	}
}

func TestBroadcastAddressCannotBeAssigned(t *testing.T) {
	_, err := newNet(t, New(Config{}), NetConfig{}).Attach(PortConfig{Addrs: []netip.Addr{limitedBroadcast}})
	if err == nil || !strings.Contains(err.Error(), "not a unicast address") {
		t.Errorf("Attach = %v", err)
	}
}

func TestMulticastReachesEveryMemberOnce(t *testing.T) {
	for _, tc := range []struct {
		addrs []string
		group string
	}{
		{[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}, "239.1.1.1"},
		{[]string{"fd00::1", "fd00::2", "fd00::3", "fd00::4"}, "ff0e::1"},
	} {
		w := New(Config{})
		n := newNet(t, w, NetConfig{})
		var h []*host
		for _, a := range tc.addrs {
			h = append(h, attach(t, n, PortConfig{Addrs: []netip.Addr{netip.MustParseAddr(a)}}))
		}
		group := netip.MustParseAddr(tc.group)
		join := func(i int) {
			must.Do(t, h[i].Join(group))
		}
		send := func(from int, want ...int) {
			t.Helper()
			for _, x := range h {
				x.got = nil
			}
			d := link.Datagram{Src: h[from].addr, Dst: netip.AddrPortFrom(group, 4791), Payload: []byte("all")}
			must.Get(h[from].Send(0, []link.Datagram{d}))(t)
			mustRun(t, w)
			for i, x := range h {
				if len(x.got) != want[i] {
					t.Errorf("from host %d: host %d got %d, want %d", from, i, len(x.got), want[i])
				}
			}
		}
		join(1)
		join(2)
		join(2)
		send(0, 0, 1, 1, 0)
		send(1, 0, 1, 1, 0) // a member receives its own, as a socket does
		must.Do(t, h[2].Leave(group))
		send(0, 0, 1, 1, 0) // joined twice, left once
		must.Do(t, h[2].Leave(group))
		send(0, 0, 1, 0, 0)
		must.Do(t, h[1].Leave(group))
		send(0, 0, 0, 0, 0)
		if h[0].Stats().Drops.NoRoute != 1 {
			t.Errorf("a packet to an empty group: %+v", h[0].Stats())
		}
		if err := h[1].Leave(group); err == nil || !strings.Contains(err.Error(), "not joined") {
			t.Errorf("Leave = %v", err)
		}
		if inUse := n.packets.made - len(n.packets.free); inUse != 0 {
			t.Errorf("%d packets leaked", inUse)
		}
	}
}

// On a cable a member may leave while the packet is being delivered.
func TestMemberMayLeaveDuringDelivery(t *testing.T) {
	w := New(Config{})
	a, b := pair(t, w, LinkConfig{})
	group := netip.MustParseAddr("239.1.1.1")
	for _, h := range []*host{a, b} {
		must.Do(t, h.Join(group))
		h.OnReadable(HandlerFunc(func(now mono.Time, _ uint64) {
			h.HandleEvent(now, 0)
			must.Do(t, h.Leave(group))
		}), 0)
	}
	d := link.Datagram{Src: a.addr, Dst: netip.AddrPortFrom(group, 4791)}
	must.Get(a.Send(0, []link.Datagram{d}))(t)
	mustRun(t, w)
	if len(a.got) != 1 || len(b.got) != 1 {
		t.Errorf("a got %d, b got %d, want one each", len(a.got), len(b.got))
	}
}

func TestJoinRejectsUnicast(t *testing.T) {
	w := New(Config{})
	a, _ := pair(t, w, LinkConfig{})
	if err := a.Join(netip.MustParseAddr("10.0.0.1")); err == nil || !strings.Contains(err.Error(), "not a multicast address") {
		t.Errorf("Join = %v", err)
	}
}
