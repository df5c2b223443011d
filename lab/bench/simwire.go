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

// simWire is the peer's end of the device's link. It sees all packets of the device.
type simWire struct {
	w      *simWorld
	device *sim.Port
	peer   *sim.Port
	cfg    *benchConfig

	inFlight []conformance.Frame // on the link
	arrived  []conformance.Frame
	received sim.Signal
	lost     int // number of packets beyond maxUnread

	unknownAddrs []netip.Addr // destinations without a port: see redirectUnknown
}

// maxUnread bounds the packets that a case leaves unread.
const maxUnread = 1 << 15

// tap implements sim.Tap. It delivers to the peer each packet that the device sends, whatever its
// destination. Packets of the device to itself do not leave the NIC, and are ignored.
func (x *simWire) tap(now mono.Time, p *sim.Port, dir sim.Direction, d *link.Datagram) {
	if p != x.device || dir != sim.Out || slices.Contains(p.Addrs(), d.Dst.Addr()) {
		return
	}
	x.inFlight = append(x.inFlight, conformance.Frame{
		At:     time.Duration(now.Add(pathLatency)),
		Packet: link.AppendUDP(make([]byte, 0, d.IPBytes()), d),
	})
	x.w.After(pathLatency, x, 0) // HandleEvent ignores the 0
}

// HandleEvent delivers the packets that have arrived by now, and drops those beyond maxUnread.
func (x *simWire) HandleEvent(mono.Time, uint64) {
	for len(x.inFlight) > 0 && x.inFlight[0].At <= x.w.Now() {
		f := x.inFlight[0]
		x.inFlight = x.inFlight[1:]
		if len(x.arrived) >= maxUnread {
			x.lost++
			continue
		}
		x.arrived = append(x.arrived, f)
		x.received.Broadcast()
	}
}

// Send implements conformance.Wire. It drops the packet if the device's link is down.
func (x *simWire) Send(packet []byte) error {
	x.w.currentProc("Send") // panics outside of the case and its tasks
	d, err := parsePacket(packet)
	if err != nil {
		return err
	}
	if err := checkMTU(packet, x.cfg.mtu); err != nil {
		return err
	}
	if !x.device.Up() {
		return nil
	}
	if err := x.redirectUnknown(&d); err != nil {
		return err
	}
	_, err = x.peer.Send(ignoredTime, []link.Datagram{d})
	return err
}

// Recv implements conformance.Wire. It fails once packets that the case did not read were dropped.
func (x *simWire) Recv(timeout time.Duration) (f conformance.Frame, err error) {
	found := x.w.waitUntil(&x.received, "a packet from the device", timeout, func() bool { return len(x.arrived) > 0 })
	switch {
	case !found:
		return f, fmt.Errorf("no packet from the device: %w", verbs.ErrTimeout)
	case x.lost > 0:
		return f, fmt.Errorf("%d packets are unread, and %d more were dropped: the case must read the packets that the device sends", len(x.arrived), x.lost)
	}
	f = x.arrived[0]
	x.arrived = x.arrived[1:]
	return f, nil
}

// Join implements conformance.Wire. All packets are seen anyway.
func (x *simWire) Join(netip.Addr) error { return nil }

// A simulated network delivers packets by IP address, and a link by Ethernet address. A packet to
// an address without a port is redirected to cableHost, an address of the device's port that the
// device does not know. The upper bits of the flow label have the index of the original address.
const (
	unknownShift = 20 // bits of a flow label
	maxUnknown   = 1<<12 - 1
)

// redirectUnknown redirects a packet to the device (at the address of cableHost) if no port has its
// destination: on a real wire it would arrive by the device's MAC address. The flow label's bits
// beyond 20 carry the number (from 1 on) of the original destination, for redirectedLink.
func (x *simWire) redirectUnknown(d *link.Datagram) error {
	to := d.Dst.Addr()
	if to.IsMulticast() || to == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return nil
	}
	for _, p := range x.device.Net().Ports() {
		if slices.Contains(p.Addrs(), to) {
			return nil
		}
	}
	if to.Is4() != (x.cfg.family == 4) {
		return cannotCarryf("to %v, and the device has %v", to, x.cfg.local)
	}
	i := slices.Index(x.unknownAddrs, to)
	if i < 0 {
		if i = len(x.unknownAddrs); i == maxUnknown {
			return cannotCarryf("more than %d unknown addresses", maxUnknown)
		}
		x.unknownAddrs = append(x.unknownAddrs, to)
	}
	d.FlowLabel |= uint32(i+1) << unknownShift
	d.Dst = netip.AddrPortFrom(hostAddr(x.cfg.family, cableHost), d.Dst.Port())
	return nil
}

// redirectedLink is the device's port. It undoes redirectUnknown.
type redirectedLink struct {
	link.GroupLink
	wire *simWire
}

// Recv implements link.PacketLink. It restores the destinations that redirectUnknown has replaced,
// by their numbers in the upper bits of the flow label.
func (l *redirectedLink) Recv(now mono.Time, ds []link.Datagram) (int, error) {
	n, err := l.GroupLink.Recv(now, ds)
	for i := range ds[:n] {
		d := &ds[i]
		if number := d.FlowLabel >> unknownShift; number > 0 {
			d.Dst = netip.AddrPortFrom(l.wire.unknownAddrs[number-1], d.Dst.Port())
			d.FlowLabel &= link.FlowLabelMask
		}
	}
	return n, err
}
