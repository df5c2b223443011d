package sim

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/internal/must"
)

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
		if inUse := len(n.packets) - len(n.free); inUse != 0 {
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
