// Package rcpeer is a scripted RoCE peer that timestamps every packet it receives. A
// [Port] sends and receives packets of all kinds, and can show that the device sent
// nothing; a [Conn] is an RC connection for cases that measure or count the packets of a
// device. A case imitates loss by not sending a packet or ignoring a received one, and
// congestion by sending packets with a CE mark. No switch is needed.
//
// The peer is stateless: it never acknowledges or retransmits by itself. It checks only
// the rules that hold for every packet, see [PacketChecker]. A port belongs to one case.
package rcpeer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/packet/ib"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

// Port is an application on the device, with a scripted peer at the other end of the link.
type Port struct {
	*rig.Rig
	// Peer is the default source address of packets.
	Peer netip.Addr
	// Checker checks every packet that the device sends.
	Checker *PacketChecker
	// skipped are packets received while waiting for others.
	skipped  []Arrival
	syncConn *syncConn
	conns    uint32
}

// Arrival is a packet received from the device.
type Arrival struct {
	ib.Packet
	// At is the time of reception.
	At time.Duration
}

// Body makes the body of a case from a function that uses a port.
func Body(body func(*Port)) func(*conformance.Bench) error {
	return rig.Body(func(r *rig.Rig) { body(New(r)) })
}

// New returns a port on the rig's bench.
func New(r *rig.Rig) *Port { return &Port{Rig: r, Peer: r.Peers[0], Checker: NewPacketChecker(r)} }

// Send sends packets, with addresses and MigReq filled in where they are unset, and
// returns the time just before the last send.
func (p *Port) Send(pkts ...ib.Packet) (at time.Duration) {
	for _, pkt := range pkts {
		defaults := ib.Packet{}.Via(p.Peer, p.Local[0])
		if pkt.Opcode() != ib.OpCNP { // a CNP has MigReq 0
			defaults = defaults.MigReq()
		}
		p.Checker.PacketSent(pkt)
		raw := pkt.Or(defaults).Build()
		at = p.Now()
		if err := p.Wire.Send(raw); err != nil {
			rig.Abort(fmt.Errorf("send %v: %w", pkt, err))
		}
	}
	return at
}

// NextPacket returns the next packet from the device; false after the timeout.
func (p *Port) NextPacket(timeout time.Duration) (Arrival, bool) {
	if len(p.skipped) > 0 {
		a := p.skipped[0]
		p.skipped = p.skipped[1:]
		return a, true
	}
	return p.recvWire(timeout)
}

func (p *Port) recvWire(timeout time.Duration) (Arrival, bool) {
	for deadline := p.Now() + timeout; ; {
		f, err := p.Wire.Recv(max(0, deadline-p.Now()))
		switch {
		case errors.Is(err, verbs.ErrTimeout):
			return Arrival{}, false
		case err != nil:
			rig.Abort(err)
		}
		pkt, err := ib.Parse(f.Packet)
		if p.UDPSockets {
			pkt = pkt.Unseen()
		}
		switch {
		case errors.Is(err, ib.ErrNotRoCE):
		case err != nil:
			p.Fail("a packet of RoCEv2", "%v (%v)", pkt, err)
		default:
			p.Checker.Check(p.Rig, pkt)
			return Arrival{pkt, f.At}, true
		}
	}
}

// Skipped returns the packets received while waiting for others.
func (p *Port) Skipped() []Arrival { return p.skipped }

// DiscardSkipped discards the packets received while waiting for others.
func (p *Port) DiscardSkipped() { p.skipped = nil }

// NextMatching returns the next matching packet; false after the timeout. It keeps others.
func (p *Port) NextMatching(matches func(*Arrival) bool, timeout time.Duration) (Arrival, bool) {
	for i := range p.skipped {
		if a := p.skipped[i]; matches(&a) {
			p.skipped = slices.Delete(p.skipped, i, i+1)
			return a, true
		}
	}
	for deadline := p.Now() + timeout; ; {
		a, ok := p.recvWire(max(0, deadline-p.Now()))
		if !ok || matches(&a) {
			return a, ok
		}
		p.skipped = append(p.skipped, a)
	}
}
