package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/verbs"
)

// simWire is the peer's end of the device's cable. It sees all that the device puts
// on the cable, to whatever address, and puts on it what it likes.
type simWire struct {
	w      *simWorld
	device *sim.Port // the device's
	peer   *sim.Port
	wish   *wish

	coming  []conformance.Frame // on the cable
	arrived []conformance.Frame
	news    sim.Signal
	lost    int

	strange []netip.Addr // destinations of nobody: see strangeBits
}

// maxUnread bounds what a case leaves unread.
const maxUnread = 1 << 15

// see takes note of what passes the ports of the network. What a device sends to
// itself leaves no NIC, and is not seen.
func (x *simWire) see(now mono.Time, p *sim.Port, dir sim.Direction, d *link.Datagram) {
	if p != x.device || dir != sim.Out || slices.Contains(p.Addrs(), d.Dst.Addr()) {
		return
	}
	x.coming = append(x.coming, conformance.Frame{
		At:     time.Duration(now.Add(wayTime)),
		Packet: appendPacket(make([]byte, 0, d.IPBytes()), d),
	})
	x.w.After(wayTime, x, 0)
}

// HandleEvent has those packets on the cable arrive whose time has come.
func (x *simWire) HandleEvent(mono.Time, uint64) {
	for len(x.coming) > 0 && x.coming[0].At <= x.w.Now() {
		f := x.coming[0]
		x.coming = x.coming[1:]
		if len(x.arrived) >= maxUnread {
			x.lost++
			continue
		}
		x.arrived = append(x.arrived, f)
		x.news.Broadcast()
	}
}

// Send implements conformance.Wire.
func (x *simWire) Send(packet []byte) error {
	x.w.me("Send")
	d, err := parsePacket(packet)
	if err != nil {
		return err
	}
	if err := x.wish.tooLong(packet); err != nil {
		return err
	}
	if !x.device.Up() {
		return nil // the cable is out
	}
	if err := x.divert(&d); err != nil {
		return err
	}
	_, err = x.peer.Send(0, []link.Datagram{d})
	return err
}

// Recv implements conformance.Wire.
func (x *simWire) Recv(timeout time.Duration) (f conformance.Frame, err error) {
	found := x.w.await(&x.news, "a packet from the device", timeout, func() bool { return len(x.arrived) > 0 })
	switch {
	case !found:
		return f, fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout)
	case x.lost > 0:
		return f, fmt.Errorf("%d packets have come that nobody read, and %d more were lost: the case must read what it has the device send", len(x.arrived), x.lost)
	}
	f = x.arrived[0]
	x.arrived = x.arrived[1:]
	return f, nil
}

// Join implements conformance.Wire. Everything is seen anyway.
func (x *simWire) Join(netip.Addr) error { return nil }

// cut loses what is on the cable.
func (x *simWire) cut() { x.coming = nil }

// A network finds a port by its address. On a cable a packet comes to the device
// whatever its address is, for the frame has one of its own: so what is sent to
// nobody's goes to the address of the device's end of the cable, which no device
// knows, and says behind the flow label which it was.
const (
	strangeShift = 20
	maxStrange   = 1<<12 - 1
)

// divert sends what is for nobody to the device.
func (x *simWire) divert(d *link.Datagram) error {
	to := d.Dst.Addr()
	if to.IsMulticast() || to == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return nil
	}
	for _, p := range x.device.Net().Ports() {
		if slices.Contains(p.Addrs(), to) {
			return nil
		}
	}
	if to.Is4() != (x.wish.family == 4) {
		return cannot("to %v, and the device has %v", to, x.wish.local)
	}
	i := slices.Index(x.strange, to)
	if i < 0 {
		if i = len(x.strange); i == maxStrange {
			return cannot("more than %d addresses that nobody has", maxStrange)
		}
		x.strange = append(x.strange, to)
	}
	d.FlowLabel |= uint32(i+1) << strangeShift
	d.Dst = netip.AddrPortFrom(hostAddr(x.wish.family, cable), d.Dst.Port())
	return nil
}

// around is put around the device's port, to undo what divert has done.
func (x *simWire) around(l link.GroupLink) link.GroupLink { return &undiverted{l, x} }

type undiverted struct {
	link.GroupLink
	x *simWire
}

// Recv implements link.PacketLink.
func (u *undiverted) Recv(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := u.GroupLink.Recv(now, ds)
	for i := range ds[:n] {
		d := &ds[i]
		if k := d.FlowLabel >> strangeShift; k > 0 {
			d.Dst = netip.AddrPortFrom(u.x.strange[k-1], d.Dst.Port())
			d.FlowLabel &= flowLabel
		}
	}
	return n, err
}
