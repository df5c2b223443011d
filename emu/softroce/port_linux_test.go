package softroce

import (
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/link/udplink"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/verbs"
)

// changeLink changes the network interface of a host.
func changeLink(t *testing.T, h *testutil.Host, change func(netlink.Link) error) {
	t.Helper()
	must.Do(t, h.Do(func() error {
		dev, err := netlink.LinkByName(testutil.HostDevice)
		if err != nil {
			return err
		}
		return change(dev)
	}))
}

// expectEvent fails the test unless this is the next event.
func expectEvent(t *testing.T, d *Device, want verbs.AsyncEventType) {
	t.Helper()
	e, err := d.WaitAsync(30 * time.Second)
	if err != nil || e.Type != want || e.Port != 1 {
		t.Fatalf("event %v of port %d, %v, want %v", e.Type, e.Port, err, want)
	}
}

// A device on sockets reports a lost carrier. Queue pairs keep retransmitting meanwhile.
func TestPortFollowsInterfaceLink(t *testing.T) {
	_, hb, da, db := devicesOnHosts(t)
	a, b := messengers(t, da, db, true) // they retry for seconds: the kernel may take one to detect the carrier
	state := func() verbs.PortState {
		p := must.Get(da.QueryPort(1))(t)
		return p.State
	}
	if got := state(); got != verbs.PortActive {
		t.Errorf("the port is %v at the start", got)
	}
	changeLink(t, hb, netlink.LinkSetDown)
	expectEvent(t, da, verbs.EventPortErr)
	if got := state(); got != verbs.PortDown {
		t.Errorf("without carrier the port is %v", got)
	}
	must.Do(t, a.PostSends(1)) // lost, and retransmitted later
	time.Sleep(20 * time.Millisecond)
	changeLink(t, hb, func(dev netlink.Link) error {
		if err := netlink.LinkSetUp(dev); err != nil {
			return err
		}
		// An interface that is set down loses its IPv6 addresses.
		return netlink.AddrReplace(dev, v6Addr(hb.V6))
	})
	expectEvent(t, da, verbs.EventPortActive)
	if got := state(); got != verbs.PortActive {
		t.Errorf("with carrier again the port is %v", got)
	}
	must.Get(b.AwaitMessages())(t) // the message sent without carrier
	before := runtime.NumGoroutine()
	must.Do(t, da.Close())
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before-2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before Close: the driver and the port monitor must end", runtime.NumGoroutine(), before)
		}
	}
}

func v6Addr(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
}

// A device on sockets reports a removed address.
func TestGIDTableFollowsInterfaceAddresses(t *testing.T) {
	ha, _, da, _ := devicesOnHosts(t)
	expectGID := func(want netip.Addr) {
		t.Helper()
		if e, err := da.QueryGID(1, 0); err != nil || e.GID.Addr() != want {
			t.Errorf("entry 0 is %v, %v, want %v", e.GID, err, want)
		}
	}
	expectGID(ha.V6)
	changeLink(t, ha, func(dev netlink.Link) error { return netlink.AddrDel(dev, v6Addr(ha.V6)) })
	expectEvent(t, da, verbs.EventGIDChange)
	expectGID(netip.IPv6Unspecified())
	changeLink(t, ha, func(dev netlink.Link) error { return netlink.AddrAdd(dev, v6Addr(ha.V6)) })
	expectEvent(t, da, verbs.EventGIDChange)
	expectGID(ha.V6)
}

// In real time pacing may catch up after a driver woke late; in a simulated world none does.
func TestCatchUpIsSetInRealTimeOnly(t *testing.T) {
	_, a, _ := pairInWorld(t, 1, impair.Config{})
	if got := a.nic.Config().Congestion.CatchUp; got != 0 {
		t.Errorf("CatchUp is %v in a simulated world", got)
	}
	b := loopback(t, "127.0.0.1", udplink.Config{})
	if got := b.nic.Config().Congestion; got.CatchUp != wakeSlack || got.MaxRateBps == 0 {
		t.Errorf("%+v on sockets", got)
	}
}
