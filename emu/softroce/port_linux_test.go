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
	"github.com/fabrictest/fabrictest/internal/nstest"
	"github.com/fabrictest/fabrictest/verbs"
)

// change does something to the wire's end in a host.
func change(t *testing.T, h *nstest.Host, what func(netlink.Link) error) {
	t.Helper()
	err := h.Do(func() error {
		dev, err := netlink.LinkByName(nstest.Device)
		if err != nil {
			return err
		}
		return what(dev)
	})
	if err != nil {
		t.Fatal(err)
	}
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
	h := newHosts(t, true)
	da, db, err := h.devices()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	a, b, err := patientEnds(da, db)
	if err != nil {
		t.Fatal(err)
	}
	state := func() verbs.PortState {
		p, err := da.QueryPort(1)
		if err != nil {
			t.Fatal(err)
		}
		return p.State
	}
	if got := state(); got != verbs.PortActive {
		t.Errorf("at first the port is %v", got)
	}
	change(t, h.b, netlink.LinkSetDown)
	expectEvent(t, da, verbs.EventPortErr)
	if got := state(); got != verbs.PortDown {
		t.Errorf("without a cable the port is %v", got)
	}
	if err := newPlayer(a, false).serve(); err != nil { // into nowhere, for now
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	change(t, h.b, func(dev netlink.Link) error {
		if err := netlink.LinkSetUp(dev); err != nil {
			return err
		}
		// An interface that is switched off loses its addresses of IPv6.
		return netlink.AddrReplace(dev, v6Addr(h.b.V6))
	})
	expectEvent(t, da, verbs.EventPortActive)
	if got := state(); got != verbs.PortActive {
		t.Errorf("with its cable back the port is %v", got)
	}
	if err := newPlayer(b, true).await(); err != nil {
		t.Errorf("the message from before: %v", err)
	}
	before := runtime.NumGoroutine()
	if err := da.Close(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before-2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before the device was closed: it has one that drives and one that watches", runtime.NumGoroutine(), before)
		}
	}
}

// patientEnds makes two ends that try for seconds: the kernel may take one to notice
// that a cable is back.
func patientEnds(da, db *Device) (a, b *end, err error) {
	if a, err = newEnd(da, verbs.QPTypeRC); err != nil {
		return nil, nil, err
	}
	if b, err = newEnd(db, verbs.QPTypeRC); err != nil {
		return nil, nil, err
	}
	if err := connectWith(a, b, 17); err != nil {
		return nil, nil, err
	}
	return a, b, newPlayer(b, false).receives(4)
}

func v6Addr(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}
}

// A device on sockets reports a removed address.
func TestGIDTableFollowsInterfaceAddresses(t *testing.T) {
	h := newHosts(t, true)
	da, db, err := h.devices()
	if err != nil {
		t.Fatal(err)
	}
	defer da.Close()
	defer db.Close()
	has := func(want netip.Addr) {
		t.Helper()
		if e, err := da.QueryGID(1, 0); err != nil || e.GID.Addr() != want {
			t.Errorf("entry 0 is %v, %v, want %v", e.GID, err, want)
		}
	}
	has(h.a.V6)
	change(t, h.a, func(dev netlink.Link) error { return netlink.AddrDel(dev, v6Addr(h.a.V6)) })
	expectEvent(t, da, verbs.EventGIDChange)
	has(netip.IPv6Unspecified())
	change(t, h.a, func(dev netlink.Link) error { return netlink.AddrAdd(dev, v6Addr(h.a.V6)) })
	expectEvent(t, da, verbs.EventGIDChange)
	has(h.a.V6)
}

// In real time pacing may catch up with a late driver, in a simulated world nobody
// is late.
func TestCatchUpIsSetInRealTimeOnly(t *testing.T) {
	_, a, _ := pairInWorld(t, 1, impair.Config{})
	if got := a.nic.Config().Congestion.CatchUp; got != 0 {
		t.Errorf("%v in a simulated world", got)
	}
	b := loopback(t, "127.0.0.1", udplink.Config{})
	if got := b.nic.Config().Congestion; got.CatchUp != wakeSlack || got.MaxRateBps == 0 {
		t.Errorf("%+v on sockets", got)
	}
}
